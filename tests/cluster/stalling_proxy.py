"""Stops a connection to a bucket in the middle of an upload, so that a worker can be killed there."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketStream

_CLOSED = anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError


class StallingProxy:
    """Passes connections on to `port`.

    Once `stall_after` is set, only this number of further bytes of requests is passed, until it is
    None again. `stalled` is set when the connection stops.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.address = ""
        self.stall_after: int | None = None
        self.stalled = anyio.Event()

    async def serve(self, listener: "anyio.abc.Listener[SocketStream]") -> None:
        await listener.serve(self._pass_on)

    async def _pass_on(self, client: SocketStream) -> None:
        async with (
            client,
            await anyio.connect_tcp("127.0.0.1", self._port) as server,
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._pass_answers, server, client)
            await self._pass_requests(client, server)
            group.cancel_scope.cancel()

    async def _pass_requests(self, client: SocketStream, server: SocketStream) -> None:
        with suppress(*_CLOSED):
            async for piece in client:
                if self.stall_after is not None:
                    self.stall_after -= len(piece)
                if (self.stall_after or 0) < 0:
                    self.stalled.set()
                    break
                await server.send(piece)
        while (self.stall_after or 0) < 0:
            await anyio.sleep(0.05)

    async def _pass_answers(self, server: SocketStream, client: SocketStream) -> None:
        with suppress(*_CLOSED):
            async for piece in server:
                await client.send(piece)


@asynccontextmanager
async def stalling_proxy(port: int) -> AsyncGenerator[StallingProxy]:
    proxy = StallingProxy(port)
    multi = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy.address = f"127.0.0.1:{multi.extra(anyio.abc.SocketAttribute.local_port)}"
    async with multi, anyio.create_task_group() as group:
        group.start_soon(proxy.serve, multi)
        yield proxy
        group.cancel_scope.cancel()
