"""Reads contents of snapshots from running `git cat-file` processes.

`snapshot_repository` starts and ends the processes, for its own contents and for those that the
user's repository lends. Nothing that is lent is believed: contents are hashed.
"""

import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from refold.errors import ToolFailed
from refold.place.snapshot_pack import BLOB_TYPE, object_name

MAX_FILE_BYTES = 32 * 1024 * 1024  # of one file in a snapshot
MAX_LENDER_SECONDS = (
    10.0  # to wait for what a lender has: another program may have put a pipe there
)
_MAX_LENDER_FAILURES = 3  # after which nothing more is read from the lenders
_MAX_NAMES_AHEAD = (
    64  # these fit into the smallest pipe (4 kB), so writing them never waits
)


class GitBlobReader:
    """Running `git cat-file`s: returns the content of a name, stored or else lent.

    A command can write in the repository of the user, which lends: so the content is hashed, its
    size is bounded, and a git that ended or waits too long is replaced a few times.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        start_lender: Callable[[], subprocess.Popen[bytes] | None],
    ) -> None:
        self._process, self._start_lender = process, start_lender
        self._lender: subprocess.Popen[bytes] | None = None
        self._failures = 0

    def get(self, name: str) -> bytes:
        return next(self.read_all((name,)))

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """The contents of these names, in their order; one is in memory at a time.

        git is asked for some names ahead. A question for each name would cost two switches
        between processes, and on a busy machine each of them waits for its turn.
        """
        left = iter(names)
        while asked := list(islice(left, _MAX_NAMES_AHEAD)):
            _ask_for(self._process, asked)
            for name in asked:
                yield self._check_content(name, _read_answer(self._process))

    def _check_content(self, name: str, content: bytes | None) -> bytes:
        if content is not None and _has_name(content, name):
            return content
        lent = self._read_lent(name)
        if lent is not None and _has_name(lent, name):
            return lent
        raise ToolFailed(f"The snapshot of a file is lost: {name}.")

    def _read_lent(self, name: str) -> bytes | None:
        if self._failures == _MAX_LENDER_FAILURES:
            return None
        self._lender = lender = self._lender or self._start_lender()
        if lender is None:
            return None
        timer = threading.Timer(MAX_LENDER_SECONDS, lender.kill)
        timer.start()
        try:
            _ask_for(lender, (name,))
            return _read_answer(lender, MAX_FILE_BYTES)
        except EOFError:
            lender.kill()
            self._lender = None
            self._failures += 1
            return None
        finally:
            timer.cancel()


def _has_name(content: bytes, name: str) -> bool:
    return object_name(BLOB_TYPE, content).hex() == name


def _ask_for(process: subprocess.Popen[bytes], names: Sequence[str]) -> None:
    asking = process.stdin
    assert asking is not None  # it is a pipe
    with suppress(OSError):  # git has ended: there will be no answer
        asking.write("".join(f"{name}\n" for name in names).encode())
        asking.flush()


def _read_answer(
    process: subprocess.Popen[bytes], max_bytes: int | None = None
) -> bytes | None:
    """The content; None if git has none. With `max_bytes`, raises `EOFError` if git has ended, or for
    a content of more bytes.
    """
    answering = process.stdout
    assert answering is not None  # it is a pipe
    try:
        head = answering.readline().split()
        if len(head) == 3 and (max_bytes is None or int(head[2]) <= max_bytes):
            content = answering.read(int(head[2]))
            answering.read(1)
            if len(content) == int(head[2]):
                return content
        if len(head) == 2:  # missing
            return None
    except OSError:  # it has ended
        pass
    if max_bytes is not None:
        raise EOFError
    return None


class ObjectLookup:
    """Running `git cat-file` that tells which contents are not stored. Threads may use it
    at the same time.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._lock = process, threading.Lock()

    def missing(self, names: Iterable[bytes]) -> list[bytes]:
        """Those of a few hundred names that are not stored; all of them if git does not
        answer.
        """
        wanted = list(names)
        asking, answering = self._process.stdin, self._process.stdout
        assert asking is not None  # both are pipes
        assert answering is not None
        timer = threading.Timer(MAX_LENDER_SECONDS, self._process.kill)
        with self._lock:
            timer.start()
            try:
                asking.write(b"".join(b"%s\n" % name.hex().encode() for name in wanted))
                asking.flush()
                lines = [answering.readline() for _ in wanted]
            except OSError:  # it has ended
                return wanted
            finally:
                timer.cancel()
        answers = zip(wanted, lines, strict=True)
        return [name for name, line in answers if line.strip() != name.hex().encode()]
