"""The epoch of a session in a place: one process at a time works for it, the newest.

A process that opens a session again has a higher epoch. That of a lower one may still run here, at
the end of a connection that is broken: it is killed before the new one works. A late
connection with a lower epoch is refused. Each process holds a lock as long as it lives, so a
process number in the file is never that of another program.
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
_RETRY_SECONDS = 0.05


# Each session that the other side has open: its id, the epoch of its writer, and how often that
# has connected.
Claims: TypeAlias = Sequence[tuple[str, int, int]]


class Epochs:
    """The sessions that this process works for."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._locks = dict[str, EpochLock]()

    def check(self, claims: Claims) -> None:
        """Raise `ToolFailed` if another process has a higher epoch of one of the sessions.

        A process of a lower one is killed first.
        """
        with self._lock:
            for session, writer, connection in claims:
                lock, epoch = self._locks.get(session), (writer, connection)
                if lock is None or lock.epoch < epoch:
                    if lock is not None:
                        lock.close()
                    lock = EpochLock(self._folder, session, epoch)
                    lock.take()
                    self._locks[session] = lock
                if lock.epoch > epoch:
                    raise ToolFailed("The call is of an earlier epoch: nothing was done.")
                lock.check()

    def release(self, session: str) -> None:
        """Work for this session no more."""
        with self._lock:
            if lock := self._locks.pop(session, None):
                lock.close()


class EpochLock:
    """Held while a process works for a session. `epoch` is (writer, connection)."""

    def __init__(self, folder: str, session: str, epoch: tuple[int, int]) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = sha256(session.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.epoch = epoch
        self._note = os.open(os.path.join(folder, name + ".epoch"), flags, 0o600)
        self._lock = os.open(os.path.join(folder, name + ".lock"), flags, 0o600)

    def take(self) -> None:
        """End the process of a lower epoch. Raises `ToolFailed` for a higher one."""
        fcntl.flock(self._note, fcntl.LOCK_EX)
        try:
            held = self._read(self._note)
            if held > self.epoch:
                raise ToolFailed(
                    "This session was opened again by another refold, which has a higher "
                    f"epoch here ({held[0]}.{held[1]}): nothing was done."
                )
            self._write(self._note, self.epoch)
        finally:
            fcntl.flock(self._note, fcntl.LOCK_UN)
        self._end_holder()

    def check(self) -> None:
        """Raise `ToolFailed` if a higher epoch has come since."""
        if self._read(self._note) > self.epoch:
            raise ToolFailed(
                "This session was opened again by another refold: nothing was done."
            )

    def close(self) -> None:
        os.close(self._note)
        os.close(self._lock)

    def _end_holder(self) -> None:
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = time.monotonic() - began
                if waited > _TAKE_OVER_SECONDS:
                    raise ToolFailed(
                        "An older process for this session does not end in the place."
                    ) from None
                hard = waited > _KILL_AFTER_SECONDS
                pid = self._read(self._lock)[0]
                if pid > 1:
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL if hard else signal.SIGTERM)
                time.sleep(_RETRY_SECONDS)
            else:
                self._write(self._lock, (os.getpid(), 0))
                return

    @staticmethod
    def _read(descriptor: int) -> tuple[int, int]:
        try:
            first, second = os.pread(descriptor, 64, 0).split()[:2]
            return int(first), int(second)
        except ValueError:
            return 0, 0

    @staticmethod
    def _write(descriptor: int, numbers: tuple[int, int]) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{numbers[0]} {numbers[1]}\n".encode(), 0)
