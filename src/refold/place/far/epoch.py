"""Ensures that in a place only the newest process works for a session.

If a session is opened again, its new connection has a higher epoch. A process of a lower epoch
may still run in the place, at the end of a broken connection: it is killed before the new
process works. A connection with a lower epoch that arrives late is refused.

Each process holds a lock as long as it lives. So a process number in the file is never that of
another program.
"""

import fcntl
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TypeAlias

from refold.errors import ToolFailed

_TAKE_OVER_SECONDS = 10.0
_KILL_AFTER_SECONDS = 5.0
_MAX_NOTE_BYTES = 64  # two numbers and the end of the line
_FILE_NAME_DIGITS = 24  # of a hash: two sessions never get the same name by chance
_RETRY_SECONDS = 0.05


# Each session that the other side has open: its id, its writer's epoch, and how often that
# writer has connected.
Claims: TypeAlias = Sequence[tuple[str, int, int]]


class Epochs:
    """The sessions for which this process works, and their locks. `folder` has the files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._locks = dict[str, EpochLock]()

    def check(self, claims: Claims) -> None:
        """Start or continue working for the sessions in `claims`.

        A process that has a lower epoch of such a session is killed. Raises `ToolFailed` if a
        session has a higher epoch.
        """
        with self._lock:
            for session, writer, connection in claims:
                epoch = writer, connection
                lock = self._locks.get(session)
                if lock is not None and lock.epoch > epoch:
                    raise ToolFailed("The call is of an earlier epoch: nothing was done.")
                if lock is None or lock.epoch < epoch:
                    if lock is not None:
                        self._locks.pop(session).close()
                    lock = EpochLock(self._folder, session, epoch)
                    try:
                        lock.take()
                    except BaseException:  # a cancellation leaves no open lock, either
                        lock.close()
                        raise
                    self._locks[session] = lock
                lock.check()

    def release(self, session: str) -> None:
        """Stop working for a session."""
        with self._lock:
            if lock := self._locks.pop(session, None):
                lock.close()


class EpochLock:
    """The lock that a process holds while it works for a session.

    `epoch` is a pair: the epoch of the journal's writer, and the number of the connection.
    """

    def __init__(self, folder: str, session: str, epoch: tuple[int, int]) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        digest = sha256(session.encode("utf-8", "surrogateescape")).hexdigest()
        name = digest[:_FILE_NAME_DIGITS]
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.epoch = epoch
        self._note = os.open(os.path.join(folder, name + ".epoch"), flags, 0o600)
        self._lock = os.open(os.path.join(folder, name + ".lock"), flags, 0o600)

    def take(self) -> None:
        """Kill a process that has a lower epoch, and take the lock.

        Raises `ToolFailed` if another process has a higher epoch.
        """
        fcntl.flock(self._note, fcntl.LOCK_EX)
        try:
            highest = self._read(self._note)
            if highest > self.epoch:
                raise ToolFailed(
                    "This session was opened again by another refold, which has a higher "
                    f"epoch here ({highest[0]}.{highest[1]}): nothing was done."
                )
            self._write(self._note, self.epoch)
        finally:
            fcntl.flock(self._note, fcntl.LOCK_UN)
        self._seize_lock()

    def check(self) -> None:
        """Raise `ToolFailed` if a process with a higher epoch has taken over."""
        if self._read(self._note) > self.epoch:
            raise ToolFailed(
                "This session was opened again by another refold: nothing was done."
            )

    def close(self) -> None:
        os.close(self._note)
        os.close(self._lock)

    def _seize_lock(self) -> None:
        """Take the lock, after killing the process that holds it. Raises `ToolFailed`."""
        began = time.monotonic()
        while True:
            with suppress(BlockingIOError):  # another process holds it
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._write(self._lock, (os.getpid(), 0))  # the second number is not used
                return
            waited = time.monotonic() - began
            if waited > _TAKE_OVER_SECONDS:
                raise ToolFailed(
                    "An older process for this session does not end in the place."
                )
            is_stubborn = waited > _KILL_AFTER_SECONDS
            pid, _ = self._read(self._lock)
            if pid > 1:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL if is_stubborn else signal.SIGTERM)
            time.sleep(_RETRY_SECONDS)

    @staticmethod
    def _read(descriptor: int) -> tuple[int, int]:
        """Return the two numbers in a file; 0, 0 if it does not begin with two numbers."""
        try:
            first, second = os.pread(descriptor, _MAX_NOTE_BYTES, 0).split()[:2]
            return int(first), int(second)
        except ValueError:
            return 0, 0

    @staticmethod
    def _write(descriptor: int, numbers: tuple[int, int]) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{numbers[0]} {numbers[1]}\n".encode(), 0)
