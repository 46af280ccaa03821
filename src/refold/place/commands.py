"""Commands on the plain machine: bash, in a process group of its own.

It keeps the promises of `port.Commands`. There is no sandbox here: the command
can do what the person can, and a program that opens a session of its own
(a daemon, `setsid`) gets away. Keeping those in is the sandbox's business.
What may run at all is judged before.
"""

import codecs
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import anyio

from refold.errors import ToolFailed
from refold.groups import lives, signal_group
from refold.place.environment import environment
from refold.place.names import escaped
from refold.place.port import Finished
from refold.place.printed import Printed

_BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
_GRACE = 0.5  # seconds between the request to end and the order
_LAST_WORDS = 0.2  # seconds in which what still runs may print after bash has ended
_LOOK_AGAIN = 0.005  # seconds: nobody tells us of processes that are not our children
_AT_ONCE = 65536  # bytes
_PIPES_MOST = 1024 * 1024  # bytes that a pipe can hold


class PlainCommands:
    """`ours` is the environment that commands are given the harmless part of."""

    def __init__(self, ours: Mapping[str, str] | None = None) -> None:
        self._environment = environment(os.environ if ours is None else ours)

    def has(self, program: str) -> bool:
        return shutil.which(program, path=self._environment["PATH"]) is not None

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        on_output: Callable[[str], None] | None = None,
    ) -> Finished:
        process, reading = self._start(command, cwd)
        printed, ended = _Reader(reading, on_output), False
        with _watch(process) as watch:
            try:
                with anyio.move_on_after(seconds):
                    await _until_ended(watch, printed)
                    ended = True
                    with anyio.move_on_after(_LAST_WORDS):
                        await printed.to_the_end()
            finally:
                with anyio.CancelScope(shield=True):
                    await _end_group(process, watch)
                printed.close()
        return printed.finished(_code(process.returncode) if ended else None)

    def _start(self, command: str, cwd: str) -> tuple[subprocess.Popen[bytes], int]:
        """The process, and the end of a pipe that all it prints comes out of."""
        reading = writing = -1
        try:
            reading, writing = os.pipe()
            process = subprocess.Popen(
                (*_BASH, command),
                cwd=cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if reading >= 0:
                os.close(reading)
            why = (
                os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
            )
            raise ToolFailed(
                f"The command could not be started in {escaped(cwd)}: {why}."
            ) from error
        finally:
            if writing >= 0:
                os.close(writing)
        return process, reading


class _Reader:
    """Reads what is printed, without ever holding up the event loop."""

    def __init__(self, reading: int, on_output: Callable[[str], None] | None) -> None:
        os.set_blocking(reading, False)
        self._reading, self._open = reading, True
        self._printed, self._on_output = Printed(), on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def to_the_end(self) -> None:
        while self._open:
            await anyio.wait_readable(self._reading)
            self._take()

    def close(self) -> None:
        # What lies in the pipe still counts; no more than that is waited for.
        for _ in range(_PIPES_MOST // _AT_ONCE):
            if not self._take():
                break
        self._tell(b"", last=True)
        os.close(self._reading)

    def finished(self, code: int | None) -> Finished:
        kept = self._printed
        return Finished(code, kept.start, kept.end, kept.dropped, timed_out=code is None)

    def _take(self) -> bool:
        try:
            piece = os.read(self._reading, _AT_ONCE)
        except BlockingIOError:
            return False
        self._open = bool(piece)
        self._printed.add(piece)
        self._tell(piece)
        return self._open

    def _tell(self, piece: bytes, *, last: bool = False) -> None:
        if self._on_output and (text := self._decoder.decode(piece, last)):
            self._on_output(text)


async def _until_ended(watch: "_Watch", printed: _Reader) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(printed.to_the_end)
        await watch.ended()
        group.cancel_scope.cancel()


async def _end_group(process: subprocess.Popen[bytes], watch: "_Watch") -> None:
    # Until the leader is reaped, and while anybody else is in the group, its number
    # cannot come to mean another group.
    for order in (signal.SIGTERM, signal.SIGKILL):
        signal_group(process.pid, order)
        signal_group(process.pid, signal.SIGCONT)  # one that was stopped must hear it
        with anyio.move_on_after(_GRACE) as grace:
            await watch.ended()
            process.poll()
            # Nothing tells us of the end of processes that are not our children.
            while signal_group(process.pid, 0) and lives(process.pid):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_AGAIN)
        if not grace.cancelled_caught:
            return


class _Watch:
    """Knows when a process has ended, without reaping it."""

    def __init__(self, process: subprocess.Popen[bytes], number: int | None) -> None:
        self._process, self._number = process, number

    async def ended(self) -> None:
        if self._process.returncode is not None:
            return
        if self._number is not None:
            await anyio.wait_readable(self._number)
        else:
            await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)


@contextmanager
def _watch(process: subprocess.Popen[bytes]) -> Generator["_Watch"]:
    try:
        number = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # no Linux, or no number left: a thread waits
        number = None
    try:
        yield _Watch(process, number)
    finally:
        if number is not None:
            os.close(number)


def _code(returned: int | None) -> int | None:
    """The code as shells say it: 128 and more for a signal."""
    return 128 - returned if returned is not None and returned < 0 else returned
