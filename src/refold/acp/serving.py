"""Serves one editor over stdin and stdout, until stdin ends or a signal arrives.

Each line is a message in JSON, which the SDK and `editor_agent` interpret. This module runs
the process around them. A line that is not a message is answered here with an error, and
reading continues.
"""

import os
import signal
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import msgspec
from acp.agent.connection import AgentSideConnection
from acp.interfaces import Agent
from anyio import to_thread

from refold.acp.editor_agent import DELETE_METHOD, EditorAgent
from refold.client.host import Host

_EDITOR_ENDED = "the editor ended refold"
_WRITE_BYTES = 4096  # accepted by a pipe without waiting, once it is writable
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600


async def serve(host: Host, lines: AsyncIterator[bytes | None], output: int) -> None:
    """Serve until stdin ends, or until SIGINT or SIGTERM; then stop the turns."""
    transport = LineTransport(lines, output)
    async with host.run(reason=_EDITOR_ENDED), anyio.create_task_group() as group:
        group.start_soon(_cancel_on_signal, group.cancel_scope)
        group.start_soon(transport.run)
        agent = cast("Agent", EditorAgent(host, group))
        connection = AgentSideConnection(
            agent, transport, listening=False, use_unstable_protocol=True
        )
        try:
            await connection.listen()
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()
        group.cancel_scope.cancel()


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return


class LineTransport:
    """A `Transport` of the SDK. Nothing else writes to the file descriptor `output`.

    `lines` yields None for a line that is too long. `run` writes the messages. So a message
    is written completely or not at all, even if the task that sends it is cancelled.
    """

    def __init__(self, lines: AsyncIterator[bytes | None], output: int) -> None:
        self._lines = lines
        self._out = output
        self._queue, self._queued = anyio.create_memory_object_stream[bytes](0)
        self._reader_has_gone = False  # the reader of our output has exited

    async def run(self) -> None:
        """Write sent messages, until this is cancelled."""
        async with self._queued:
            async for message in self._queued:
                remaining = memoryview(message)
                while remaining and not self._reader_has_gone:
                    written_bytes = await self._write(remaining[:_WRITE_BYTES])
                    remaining = remaining[written_bytes:]

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the input."""
        async for line in self._lines:
            if self._reader_has_gone:
                return None
            if line is not None and not line.strip():
                continue
            try:
                # a line that is too long is rejected like one that is not JSON
                value: object = msgspec.json.decode(b"" if line is None else line)
            except (ValueError, RecursionError) as error:
                await self._reject(_PARSE_ERROR, f"this line is not JSON: {error}")
                continue
            if isinstance(value, dict):
                message = cast("dict[str, Any]", value)
                if message.get("method") == DELETE_METHOD:
                    # the SDK passes methods of this form to `ext_method`
                    message["method"] = f"_{DELETE_METHOD}"
                return message
            await self._reject(_INVALID_REQUEST, "a message is a JSON object")
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises `ConnectionError` after the end of the connection."""
        try:
            await self._queue.send(msgspec.json.encode(message, enc_hook=str) + b"\n")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise ConnectionError("the editor disconnected") from error

    async def close(self) -> None:
        self._queue.close()

    async def _write(self, piece: memoryview) -> int:
        """Write some of the piece, and return the number of bytes.

        Return 0 if the editor does not read now.
        """
        try:
            try:
                await anyio.wait_writable(self._out)
                return os.write(self._out, piece)
            except PermissionError:  # a file is always writable, and cannot be polled
                return await to_thread.run_sync(os.write, self._out, piece)
        except BlockingIOError:
            return 0
        except OSError:
            self._reader_has_gone = True
            return 0

    async def _reject(self, code: int, reason: str) -> None:
        """Answer a line that is not a message with an error."""
        error = {"code": code, "message": reason}
        await self.send({"jsonrpc": "2.0", "id": None, "error": error})
