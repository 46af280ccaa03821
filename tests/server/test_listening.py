"""The listening socket of a server: what holds for every connection that it accepts."""

import asyncio
import socket
from contextlib import closing

import pytest

from refold.server.listening import ListenOptions, listen

pytestmark = pytest.mark.anyio


async def test_connections_that_a_server_accepts_have_tcp_nodelay() -> None:
    """With TCP_NODELAY: otherwise a response waits up to 40 ms for an acknowledgement."""
    options = list[int]()
    accepted = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        options.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()
        accepted.set()

    with closing(listen(ListenOptions())) as listener:
        server = await asyncio.start_server(accept, sock=listener)
        with closing(socket.create_connection(listener.getsockname())):
            await accepted.wait()
        server.close()

    assert options == [1]
