"""Runs the process of a worker, and exchanges frames with it over a socket.

A frame consists of two lengths, a JSON object and bytes. Code in the worker may have found the
socket, so lengths are checked before anything is read, and only messages of the types below are
accepted. `worker` decides what is sent and handles the messages.
"""

import math
import shlex
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TypeAlias

import anyio
import msgspec
from anyio import lowlevel
from anyio.abc import TaskGroup
from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.limits import Limits
from refold.place.port import CommandExtras, Commands, Finished
from refold.rlm.worker_port import Engine, WorkerLost
from refold.values.tools import Confinement

FRAME_HEADER = struct.Struct("!II")
MAX_MESSAGE_BYTES = 64 * 1024 * 1024  # one message from the worker
MAX_BLOB_BYTES = 264 * 1024 * 1024  # a snapshot, with its index and its parts
_MAX_LENGTH = 1 << 32  # the limit of the length fields
_CHUNK_BYTES = 256 * 1024

Pairs: TypeAlias = tuple[tuple[str, str], ...]
CLOSED_REASON = "The Python worker was closed."

_START_SECONDS = 30.0  # enough on a busy machine
_END_SECONDS = 3.0  # for the exit code, or for the last messages
_MAX_PROCESSES = 128
_CHECKS_PER_COUNT = 20
# glibc reserves 64 to 128 MiB of addresses for each memory pool, and creates up to eight
# pools per core. On a large machine these alone would exceed the memory limit of the code.
_POOL_LIMIT = "MALLOC_ARENA_MAX=2"
_MAX_ERROR_CHARS = 300
_MAX_WAITING_MESSAGES = 10_000  # queued for the worker
_BROKEN_CODE = 71  # the exit code of a worker that lost its connection
_SOURCE_ROOT = Path(__file__).parents[2]
_WORKER_CODE = (
    f"import sys; sys.path.insert(0, {str(_SOURCE_ROOT)!r}); "
    "from refold.rlm.worker_side.{module} import main; main()"
)
_ENGINE_MODULES: Mapping[Engine, str] = {"cpython": "main", "monty": "monty"}


class ConnectionClosed(WorkerLost):
    """Raised if the worker has closed the socket, most likely because it has exited."""


class Ready(Struct, frozen=True, tag_field="t", tag="ready", forbid_unknown_fields=True):
    """The message that the worker is ready for requests."""


class HostCall(Struct, frozen=True, tag_field="t", tag="call", forbid_unknown_fields=True):
    """The message that code calls a function of the host."""

    call: int
    name: str
    arguments: dict[str, object]


class Printed(
    Struct, frozen=True, tag_field="t", tag="printed", forbid_unknown_fields=True
):
    text: str


class Finaled(Struct, frozen=True, tag_field="t", tag="final", forbid_unknown_fields=True):
    """The message that code has called FINAL. `value` is the argument as JSON.

    `text` is what the cell had printed before.
    """

    value: str
    text: str


class Part(Struct, frozen=True, tag_field="t", tag="part", forbid_unknown_fields=True):
    """The message that carries a part of a snapshot. The bytes are in the frame's blob."""

    name: str


class Done(Struct, frozen=True, tag_field="t", tag="done", forbid_unknown_fields=True):
    """The response to a request. Fields that do not belong to the kind of request are not set.

    `kept` has variables, each with its type; `lost` has variables, each with a reason.
    """

    id: int
    text: str = ""
    failed: bool = False
    kept: Pairs = ()
    lost: Pairs = ()
    parts: tuple[str, ...] = ()


FromWorker: TypeAlias = Ready | HostCall | Printed | Finaled | Part | Done


class OutgoingFrame(NamedTuple):
    """An encoded frame for the worker. The blob is separate, so that it need not be copied."""

    head: bytes  # the lengths and the message
    blob: bytes


def make_frame(message: Mapping[str, object], blob: bytes = b"") -> OutgoingFrame:
    """Encode a message and its blob as a frame. Raises `ValueError` if it is too long."""
    body = msgspec.json.encode(message)
    if max(len(body), len(blob)) >= _MAX_LENGTH:
        raise ValueError("a value for the Python worker has more than 4 GB")
    return OutgoingFrame(FRAME_HEADER.pack(len(body), len(blob)) + body, blob)


class Frames:
    """Reads and writes frames at the host's end of the socket. All methods raise `WorkerLost`.

    One task reads, and one writes.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._received = bytearray()
        self.longest_blob = 0  # the longest accepted blob: a blob comes only on request
        self._decode = msgspec.json.Decoder(FromWorker).decode

    async def read(self) -> tuple[FromWorker, bytes]:
        """Return the next message and its blob, which may be empty."""
        header = await self._read_exactly(FRAME_HEADER.size)
        body_length, blob_length = FRAME_HEADER.unpack(header)
        if body_length > MAX_MESSAGE_BYTES or blob_length > self.longest_blob:
            length = body_length + blob_length
            raise WorkerLost(
                f"The Python worker announced a message of {length:,} bytes, "
                f"and may send {MAX_MESSAGE_BYTES + self.longest_blob:,}."
            )
        try:
            message = self._decode(await self._read_exactly(body_length))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WorkerLost(
                f"Unexpected message from the Python worker: {error}."
            ) from error
        return message, bytes(await self._read_exactly(blob_length))

    async def write(self, frame: OutgoingFrame) -> None:
        for piece in frame:
            await self._write_all(memoryview(piece))

    async def _write_all(self, view: memoryview) -> None:
        """Send all bytes. Raises `ConnectionClosed`."""
        while view:
            try:
                sent_bytes = self._end.send(view[:_CHUNK_BYTES])
                view = view[sent_bytes:]
            except BlockingIOError:
                await anyio.wait_writable(self._end)
            except OSError as error:
                raise ConnectionClosed(
                    "The Python worker no longer reads messages."
                ) from error

    async def _read_exactly(self, count: int) -> bytearray:
        """Return the next `count` bytes. Raises `ConnectionClosed`."""
        while len(self._received) < count:
            try:
                piece = self._end.recv(_CHUNK_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._end)
                continue
            except OSError:
                piece = b""  # as if it was closed
            if not piece:
                raise ConnectionClosed("The Python worker has closed its connection.")
            self._received += piece
            # A worker that never stops sending must not block the event loop.
            await lowlevel.checkpoint()
        data = self._received[:count]
        del self._received[:count]
        return data


class Process:
    """The process in the sandbox, whose standard input is a socket.

    `on_message` gets its messages, and `on_use` its CPU time. `why` says why the process
    exited; "" while it runs.
    """

    def __init__(
        self,
        group: TaskGroup,
        on_message: Callable[[FromWorker, bytes], None],
        on_end: Callable[[], None],
        on_use: Callable[[float], None],
        engine: Engine = "cpython",
    ) -> None:
        self._code = _WORKER_CODE.format(module=_ENGINE_MODULES[engine])
        self._group, self._on_message, self._on_end = group, on_message, on_end
        self._on_use = on_use
        self._own_end, self._worker_end = socket.socketpair()
        self.frames = Frames(self._own_end)
        queue = anyio.create_memory_object_stream[OutgoingFrame](math.inf)
        self._to_queue, self._from_queue = queue
        self._scope = anyio.CancelScope()
        self._ready, self._disconnected = anyio.Event(), anyio.Event()
        self._ended = anyio.Event()
        self._exit_reason = ""  # why the program exited; "" while it runs
        self.why = ""

    async def begin(
        self, commands: Commands, cwd: str, memory: int, orders: Mapping[str, object]
    ) -> None:
        """Start the process, and send it `orders`. Raises `WorkerLost` if it does not start.

        `orders` are fields of the first message. `memory` is the memory limit in bytes.
        """
        self._group.start_soon(self._run, commands, cwd, memory)
        self._group.start_soon(self._receive_all)
        self._group.start_soon(self._send_all)
        self.send(
            {"t": "begin", "memory": memory, "paths": _cloudpickle_directories(), **orders}
        )
        with anyio.move_on_after(_START_SECONDS):
            await self._ready.wait()
        if not self._ready.is_set():
            self.end(f"The Python worker did not begin within {_START_SECONDS:.0f} s.")
        self.check()

    def check(self) -> None:
        """Raise `WorkerLost` if the process was lost."""
        if self.why:
            raise WorkerLost(self.why)

    def send(self, message: Mapping[str, object], blob: bytes = b"") -> None:
        """Queue a message for sending. If the process has exited, do nothing.

        If too many messages wait, kill the process, because it does not read them.
        """
        if self.why:
            return
        if self._to_queue.statistics().current_buffer_used > _MAX_WAITING_MESSAGES:
            self.end(
                "The Python worker was killed: it asks, and does not read the answers."
            )
        else:
            self._to_queue.send_nowait(make_frame(message, blob))

    def end(self, reason: str) -> None:
        """Kill the process group for this reason, unless it was killed before."""
        if not self.why:
            self.why = reason
            self._scope.cancel()
            self._ready.set()
            self._on_end()

    def close(self) -> None:
        """Close the sockets. Call this when no task of the process runs any longer."""
        self._to_queue.close()
        self._from_queue.close()
        for end in (self._own_end, self._worker_end):
            end.close()

    async def _run(self, commands: Commands, cwd: str, memory: int) -> None:
        """Run the program until it exits. Then call `end` with the reason."""
        # The worker limits itself to `memory`. The outer limit is a quarter higher, so that code
        # gets a MemoryError before the kernel kills the process.
        limits = Limits(
            processes=_MAX_PROCESSES,
            memory=memory * 5 // 4,
            checks_per_count=_CHECKS_PER_COUNT,
        )
        readable = (
            sys.prefix,
            sys.base_prefix,
            str(_SOURCE_ROOT),
            *_cloudpickle_directories(),
        )
        extras = CommandExtras(
            stdin=self._worker_end.fileno(),
            limits=limits,
            seen=tuple(dict.fromkeys(readable)),
            own_tmp=True,
            used=self._on_use,
        )
        words = [sys.executable, "-I", "-B", "-X", "utf8", "-c", self._code]
        with self._scope:
            try:
                finished = await commands.run(
                    f"{_POOL_LIMIT} exec {shlex.join(words)}",
                    cwd=cwd, seconds=None, confines=Confinement(), extras=extras,
                )  # fmt: skip
                self._exit_reason = _describe_exit(finished)
            except ToolFailed as error:
                self._exit_reason = f"The Python worker could not be started: {error}"
            finally:
                self._ended.set()
                self._worker_end.close()
        try:
            with anyio.move_on_after(_END_SECONDS):
                await self._disconnected.wait()  # its last messages must still be handled
        finally:
            self.end(self._exit_reason or CLOSED_REASON)

    async def _receive_all(self) -> None:
        """Pass messages on until the connection closes. Then call `end` with the reason."""
        try:
            while True:
                message, blob = await self.frames.read()
                if isinstance(message, Ready):
                    # From now on only the worker needs the other end.
                    self._worker_end.close()
                    self._ready.set()
                else:
                    self._on_message(message, blob)
        except ConnectionClosed as closed:
            self._disconnected.set()
            with anyio.move_on_after(_END_SECONDS):
                await self._ended.wait()
            self.end(self._exit_reason or str(closed))
        except WorkerLost as lost:
            self.end(str(lost))

    async def _send_all(self) -> None:
        """Send the queued messages until the queue or the connection is closed."""
        try:
            async for frame in self._from_queue:
                await self.frames.write(frame)
                del frame  # its blob may be large, and the next frame may come much later
        except ConnectionClosed:
            pass  # the reading task reports the error


def _cloudpickle_directories() -> tuple[str, ...]:
    """Return the directory from which the worker can import cloudpickle; () if there is none."""
    spec = find_spec("cloudpickle")
    return (str(Path(spec.origin).parents[1]),) if spec and spec.origin else ()


def _describe_exit(finished: Finished) -> str:
    """Return a sentence for the model on why the process exited."""
    if finished.stopped:
        return f"The Python worker was killed: {finished.stopped}."
    code = finished.code or 0
    if code == _BROKEN_CODE:
        return "The Python worker lost its connection: the code closed it."
    # After a signal, the code is 128 plus the number of the signal.
    if code == 128 + signal.SIGKILL:
        return "The Python worker was killed, most likely because memory ran out."
    if code > 128:
        return f"The Python worker crashed ({_signal_name(code - 128)})."
    last_lines = finished.text.strip()[-_MAX_ERROR_CHARS:].splitlines()
    reason = f"The Python worker exited by itself, with code {code}"
    return f"{reason}: {last_lines[-1]}" if last_lines else f"{reason}."


def _signal_name(number: int) -> str:
    """Return the name of a signal, such as "SIGSEGV"; "signal 99" if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
