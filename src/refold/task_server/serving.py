"""Serves the tools of `task_tools`: to one program over stdio, or to several over streamable HTTP.

Over stdio the SDK reads and writes, and keeps stdout for the protocol. Over HTTP a program before
2026-07-28 has an MCP session, and a newer one has none. So what keeps the tasks of two programs
apart is the id of a task, which cannot be guessed. Who may come in is decided in front of this:
`refold.server.guard`, which also listens.
"""

import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from mcp.server.transport_security import TransportSecuritySettings
from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from refold.task_server.delegated_tasks import DelegatedTasks, LaunchAt
from refold.task_server.task_tools import server

MCP_PATH = "/mcp"
_MAX_SESSIONS = 64
_END_SECONDS = 1.0  # that calls have when the server ends
_QUESTION_TIMEOUT_SECONDS = 3600.0  # that a question waits for a program to come for it


async def serve_stdio(root: Path, launch_at: LaunchAt, leave: Callable[[], None]) -> None:
    """Serve one agent over stdin and stdout, until stdin ends or a signal comes.

    Tasks work in `root` and below it; those that run at the end are stopped.

    At a signal `leave` ends the process: a thread of the SDK waits for stdin, and nothing
    but a line or the end of stdin wakes it.
    """
    async with anyio.create_task_group() as group:
        tasks = DelegatedTasks(root, launch_at, group)
        group.start_soon(_close_at_signal, tasks, leave)
        await server(tasks).run_stdio_async()
        await tasks.close()
        group.cancel_scope.cancel()


async def _close_at_signal(tasks: DelegatedTasks, leave: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            await tasks.close()
            leave()


class Served(Struct, frozen=True):
    """`leave` stops all tasks, reports to followers how each ended, and ends all
    streams."""

    app: ASGIApp
    leave: Callable[[], Awaitable[None]]


@asynccontextmanager
async def serve_http(root: Path, launch_at: LaunchAt) -> AsyncGenerator[Served]:
    """An ASGI application. Tasks work in `root` and below it, and end when this is left."""
    async with anyio.create_task_group() as group:
        tasks = DelegatedTasks(root, launch_at, group, _QUESTION_TIMEOUT_SECONDS)
        mcp_server = server(tasks)
        app = mcp_server.streamable_http_app(
            streamable_http_path=MCP_PATH,
            max_sessions=_MAX_SESSIONS,
            # The guard in front of it knows the names of the server.
            transport_security=TransportSecuritySettings(
                enable_dns_rebinding_protection=False
            ),
        )
        ending = anyio.Event()

        async def close_sessions() -> None:
            await tasks.close()
            ending.set()

        async with mcp_server.session_manager.run():
            yield Served(_Ending(app, ending), close_sessions)
        await tasks.close()
        group.cancel_scope.cancel()


class _Ending:
    """Ends the responses that would not end by themselves, such as the stream of a client's
    session."""

    def __init__(self, app: ASGIApp, ending: anyio.Event) -> None:
        self._app, self._ending = app, ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = complete = False

        async def note_and_send(message: Message) -> None:
            nonlocal begun, complete
            begun = True
            complete = message["type"] == "http.response.body" and not message.get(
                "more_body"
            )
            await send(message)

        async with anyio.create_task_group() as group:
            seconds = 0.0 if scope.get("method") == "GET" else _END_SECONDS
            group.start_soon(self._end_after, group.cancel_scope, seconds)
            await self._app(scope, receive, note_and_send)
            group.cancel_scope.cancel()
        if begun and not complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end_after(self, scope: anyio.CancelScope, seconds: float) -> None:
        await self._ending.wait()
        with anyio.move_on_after(seconds):
            await anyio.sleep_forever()
        scope.cancel()
