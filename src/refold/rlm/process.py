"""A worker's process as the host holds it: in the sandbox, with a socket as its input.

It is started, heard, spoken to, ended; and when it is gone, it is known why. What is
said is `frames`, and what is asked for is `worker`'s business.
"""

import math
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from refold.errors import ToolFailed
from refold.place.limits import Limits
from refold.place.port import CommandExtras, Commands, Finished
from refold.rlm.frames import Closed, Frames, FromWorker, Ready, framed
from refold.rlm.port import WorkerLost
from refold.values.confines import Confines

CLOSED = "The Python worker was closed."

_TO_BEGIN = 30.0  # seconds for a process to come up on a busy machine
_LAST_NEWS = 3.0  # seconds until we hear how a process ended
_PROCESSES = 128
_GLANCES = 20
_LAST_WORDS = 300  # characters
_UNHEARD = 10_000  # messages to it that wait
_BROKEN = 71  # the code of a worker whose connection was taken away
_ROOT = Path(__file__).parents[2]
_CODE = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
    "from refold.rlm.inside.main import main; main()"
)


class Process:
    """`hear` gets what it says, `used` how long it has computed. `why` says why it is gone."""

    def __init__(
        self,
        group: TaskGroup,
        hear: Callable[[FromWorker, bytes], None],
        on_end: Callable[[], None],
        used: Callable[[float], None],
    ) -> None:
        self._group, self._on_hear, self._on_end = group, hear, on_end
        self._used = used
        self._ends = socket.socketpair()
        self.frames = Frames(self._ends[0])
        self._outgoing, self._to_send = anyio.create_memory_object_stream[bytes](math.inf)
        self._scope = anyio.CancelScope()
        self._ready, self._ended, self._deaf = anyio.Event(), anyio.Event(), anyio.Event()
        self._how, self.why = "", ""

    async def begin(
        self, commands: Commands, cwd: str, memory: int, orders: Mapping[str, object]
    ) -> None:
        """Raises `WorkerLost` where it does not come up."""
        self._group.start_soon(self._run, commands, cwd, memory)
        self._group.start_soon(self._hear)
        self._group.start_soon(self._speak)
        self.tell({"t": "begin", "memory": memory, "paths": _paths(), **orders})
        with anyio.move_on_after(_TO_BEGIN):
            await self._ready.wait()
        if not self._ready.is_set():
            self.end(f"The Python worker did not begin within {_TO_BEGIN:.0f} s.")
        self.check()

    def check(self) -> None:
        if self.why:
            raise WorkerLost(self.why)

    def tell(self, message: Mapping[str, object], blob: bytes = b"") -> None:
        """Returns at once. What is told to one that is gone is not heard."""
        if self.why:
            return
        if self._outgoing.statistics().current_buffer_used > _UNHEARD:
            self.end("The Python worker was ended: it asks, and does not hear the answers.")
        else:
            self._outgoing.send_nowait(framed(message, blob))

    def end(self, why: str) -> None:
        """All of it is killed. The first reason counts."""
        if not self.why:
            self.why = why
            self._scope.cancel()
            self._ready.set()
            self._on_end()

    def close(self) -> None:
        """When no task of it runs any more."""
        self._outgoing.close()
        self._to_send.close()
        for end in self._ends:
            end.close()

    async def _run(self, commands: Commands, cwd: str, memory: int) -> None:
        given = CommandExtras(
            stdin=self._ends[1].fileno(),
            # Code is to get a MemoryError before all of it is ended.
            limits=Limits(processes=_PROCESSES, memory=memory * 5 // 4, glances=_GLANCES),
            seen=tuple(dict.fromkeys([sys.prefix, sys.base_prefix, str(_ROOT), *_paths()])),
            own_tmp=True,
            used=self._used,
        )
        words = [sys.executable, "-I", "-B", "-X", "utf8", "-c", _CODE]
        with self._scope:
            try:
                finished = await commands.run(
                    f"exec {shlex.join(words)}",
                    cwd=cwd, seconds=None, confines=Confines(), given=given,
                )  # fmt: skip
                self._how = _how(finished)
            except ToolFailed as error:
                self._how = f"The Python worker could not be started: {error}"
            finally:
                self._ended.set()
                self._ends[1].close()
        try:
            with anyio.move_on_after(_LAST_NEWS):
                await self._deaf.wait()  # what it has said last still counts
        finally:
            self.end(self._how or CLOSED)

    async def _hear(self) -> None:
        try:
            while True:
                message, blob = await self.frames.read()
                if isinstance(message, Ready):
                    # Then there is nobody but the worker whose end it could be.
                    self._ends[1].close()
                    self._ready.set()
                else:
                    self._on_hear(message, blob)
        except Closed as closed:
            self._deaf.set()
            with anyio.move_on_after(_LAST_NEWS):
                await self._ended.wait()
            self.end(self._how or str(closed))
        except WorkerLost as lost:
            self.end(str(lost))

    async def _speak(self) -> None:
        try:
            async for frame in self._to_send:
                await self.frames.write(frame)
        except Closed:
            pass  # heard by whoever reads


def _paths() -> tuple[str, ...]:
    """Where the worker finds what it needs."""
    found = find_spec("cloudpickle")
    return (str(Path(found.origin).parents[1]),) if found and found.origin else ()


def _how(finished: Finished) -> str:
    if finished.stopped:
        return f"The Python worker was ended: {finished.stopped}."
    code = finished.code or 0
    if code == _BROKEN:
        return "The Python worker ended: the code has taken its connection away."
    if code == 128 + signal.SIGKILL:
        return "The Python worker was killed, most likely because memory ran out."
    if code > 128:
        return f"The Python worker crashed ({_signal(code - 128)})."
    said = finished.text.strip()[-_LAST_WORDS:].splitlines()
    last = f": {said[-1]}" if said else "."
    return f"The Python worker ended by itself, with code {code}{last}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
