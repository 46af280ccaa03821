"""Reads contents of snapshots from running `git cat-file` processes.

`snapshot_repository` starts and stops the processes. One reads refold's own repository and one
the user's (the lender).
"""

import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from refold.errors import ToolFailed
from refold.place.snapshot_pack import BLOB_TYPE, object_name

MAX_FILE_BYTES = 32 * 1024 * 1024  # the size of one file in a snapshot
# the time to wait for a lender's content: another program may have put a pipe there
MAX_LENDER_SECONDS = 10.0
_MAX_LENDER_FAILURES = 3  # after this many, nothing more is read from lenders
# this many requests fit into the smallest pipe (4 kB), so writing them never blocks
_MAX_NAMES_AHEAD = 64


class GitBlobReader:
    """Returns contents by name, from refold's repository or else from the lender.

    Commands can write to the lender. So each content is checked by its hash, its size is
    limited, and a git process that exits or takes too long is replaced a few times.
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
        """Yield the contents with these names, in their order.

        Raises `ToolFailed` if a content is lost. Some names are requested in advance, because
        waiting for each answer costs two switches between processes.
        """
        remaining = iter(names)
        while requested := list(islice(remaining, _MAX_NAMES_AHEAD)):
            _ask_for(self._process, requested)
            for name in requested:
                try:
                    content = _read_answer(self._process)
                except EOFError:
                    content = None  # the lender may have it
                yield self._check_content(name, content)

    def _check_content(self, name: str, content: bytes | None) -> bytes:
        """Return the content of that name, from the lender if needed. Raises `ToolFailed`."""
        if content is not None and _has_name(content, name):
            return content
        lent = self._read_borrowed(name)
        if lent is not None and _has_name(lent, name):
            return lent
        raise ToolFailed(f"The snapshot of a file is lost: {name}.")

    def _read_borrowed(self, name: str) -> bytes | None:
        """Return a content that the lender has; None if it has none or does not answer."""
        if self._failures == _MAX_LENDER_FAILURES:
            return None
        if self._lender is None:
            self._lender = self._start_lender()
        lender = self._lender
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
    """Send the names to git. `_read_answer` then returns one answer after the other."""
    requests = process.stdin
    assert requests is not None  # it is a pipe
    with suppress(OSError):  # git has exited: no answer will arrive
        requests.write("".join(f"{name}\n" for name in names).encode())
        requests.flush()


def _read_answer(
    process: subprocess.Popen[bytes], max_bytes: int | None = None
) -> bytes | None:
    """Return the content in the next answer of git; None if git does not have it.

    Raises `EOFError` if git has exited, or if the content is longer than `max_bytes`.
    """
    answering = process.stdout
    assert answering is not None  # it is a pipe
    try:
        head = answering.readline().split()
        if len(head) == 2:  # name and "missing"
            return None
        if len(head) == 3:  # name, type and size
            size = int(head[2])
            if max_bytes is None or size <= max_bytes:
                content = answering.read(size)
                answering.read(1)  # the line end after the content
                if len(content) == size:
                    return content
    except OSError as error:
        raise EOFError from error
    raise EOFError


class ObjectLookup:
    """Finds out which contents are not stored, with a running `git cat-file`. Thread-safe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._lock = process, threading.Lock()

    def missing(self, names: Iterable[bytes]) -> list[bytes]:
        """Return those of `names` that are not stored; all of them if git does not answer.

        At most a few hundred names may be passed.
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
            except OSError:  # git has exited
                return wanted
            finally:
                timer.cancel()
        # Of an object that is stored, git prints only the name.
        answers = zip(wanted, lines, strict=True)
        return [name for name, line in answers if line.strip() != name.hex().encode()]
