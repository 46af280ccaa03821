"""Tests the connection between two processes that have one session open."""

import asyncio
import socket
from contextlib import closing

import anyio
import pytest

from refold.client.session_socket import LineConnection

pytestmark = pytest.mark.anyio


async def test_a_receive_cancelled_as_data_arrive_leaves_the_connection_usable() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    loop, problems = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: problems.append(context))

    with closing(far), closing(LineConnection(near)) as connection:
        async with anyio.create_task_group() as group:
            group.start_soon(connection.receive)
            await anyio.wait_all_tasks_blocked()
            far.send(b"both of this happens in one round of the event loop")
            loop.call_soon(group.cancel_scope.cancel)

        assert await connection.receive() == (
            b"both of this happens in one round of the event loop"
        )
    assert problems == []
