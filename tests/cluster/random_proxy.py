"""Passes each HTTP request, and each WebSocket, to a node chosen at random."""

import random
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

_CONNECTION_PATTERN = re.compile(rb"\r\nconnection: *keep-alive\b", re.IGNORECASE)
_MAX_HEAD_BYTES = 64 * 1024
_CLOSED = (
    anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead,
    OSError,
)  # fmt: skip


@asynccontextmanager
async def random_proxy(
    addresses: Mapping[str, tuple[str, int]], seed: int
) -> AsyncGenerator[int]:
    """Run the proxy, and yield its port. `addresses` of the nodes, by name, may change.

    A node closes its connection after each response, so that the next request may go to another
    node.
    """
    choose = random.Random(seed)

    async def pass_on(client: SocketStream) -> None:
        async with client:
            requests = BufferedByteReceiveStream(client)
            with suppress(*_CLOSED):
                head = await requests.receive_until(b"\r\n\r\n", _MAX_HEAD_BYTES)
                head = _CONNECTION_PATTERN.sub(b"\r\nConnection: close", head)
                address = choose.choice(sorted(addresses.values()))
                node = await anyio.connect_tcp(*address)
                await node.send(head + b"\r\n\r\n")
                async with node, anyio.create_task_group() as group:
                    group.start_soon(_copy, requests, node)
                    await _copy(node, client)
                    group.cancel_scope.cancel()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, pass_on)
        yield listener.extra(SocketAttribute.local_port)
        group.cancel_scope.cancel()


async def _copy(source: BufferedByteReceiveStream | ByteStream, target: ByteStream) -> None:
    with suppress(*_CLOSED):
        async for piece in source:
            await target.send(piece)
