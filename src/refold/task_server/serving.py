"""Serves the tools of `task_tools`: to one program over stdio, or to several over HTTP.

Over HTTP any program that knows the id of a task can use the task. The id cannot be
guessed, so it keeps the tasks of two programs apart. MCP sessions cannot do that, because
the protocol since 2026-07-28 has no sessions. Over stdio the SDK reads and writes, and
reserves stdout for the protocol.

`refold.server` listens, and its `guard` decides which requests reach this module.
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
_END_SECONDS = 1.0  # in which running calls can end with the server
_QUESTION_TIMEOUT_SECONDS = 3600.0  # for which a question waits for a program to fetch it


async def serve_stdio(root: Path, launch_at: LaunchAt, leave: Callable[[], None]) -> None:
    """Serve one agent over stdin and stdout, until stdin ends or a signal comes.

    Tasks work in `root` and below it; tasks that run at the end are stopped. `launch_at`
    returns the start of a session in a directory.

    At a signal, `leave` is called and must end the process. Returning would not end the
    process, because a thread of the SDK waits for stdin until a line arrives or stdin ends.
    """
    async with anyio.create_task_group() as group:
        tasks = DelegatedTasks(root, launch_at, group)
        group.start_soon(_close_at_signal, tasks, leave)
        await server(tasks).run_stdio_async()
        await tasks.close()
        group.cancel_scope.cancel()


async def _close_at_signal(tasks: DelegatedTasks, leave: Callable[[], None]) -> None:
    """At SIGINT or SIGTERM, stop all tasks and call `leave`."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            await tasks.close()
            leave()


class HttpService(Struct, frozen=True):
    """An ASGI application, and a function that ends it.

    `leave` stops all tasks, reports to followers how each ended, and ends all streams.
    """

    app: ASGIApp
    leave: Callable[[], Awaitable[None]]


@asynccontextmanager
async def serve_http(root: Path, launch_at: LaunchAt) -> AsyncGenerator[HttpService]:
    """Yield an ASGI application. Tasks work in `root` and below it, and end with the block.

    `launch_at` returns the start of a session in a directory.
    """
    async with anyio.create_task_group() as group:
        tasks = DelegatedTasks(root, launch_at, group, _QUESTION_TIMEOUT_SECONDS)
        mcp_server = server(tasks)
        app = mcp_server.streamable_http_app(
            streamable_http_path=MCP_PATH,
            max_sessions=_MAX_SESSIONS,
            # The guard in front of the application checks the names of the server.
            transport_security=TransportSecuritySettings(
                enable_dns_rebinding_protection=False
            ),
        )
        ending = anyio.Event()

        async def close_sessions() -> None:
            await tasks.close()
            ending.set()

        async with mcp_server.session_manager.run():
            yield HttpService(_EndingApp(app, ending), close_sessions)
        await tasks.close()
        group.cancel_scope.cancel()


class _EndingApp:
    """Ends the responses of `app` that would not end by themselves when the server ends.

    An example is the stream of a client's session.
    """

    def __init__(self, app: ASGIApp, ending: anyio.Event) -> None:
        self._app = app
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. At the end of the server, end the response if it is open."""
        begun = False
        complete = False

        async def note_and_send(message: Message) -> None:
            """Send a message, and note whether the response has begun and is complete."""
            nonlocal begun, complete
            begun = True
            is_body = message["type"] == "http.response.body"
            complete = is_body and not message.get("more_body")
            await send(message)

        async with anyio.create_task_group() as group:
            # A GET is a stream of messages that the server sends, which never ends by itself.
            seconds = 0.0 if scope.get("method") == "GET" else _END_SECONDS
            group.start_soon(self._end_after, group.cancel_scope, seconds)
            await self._app(scope, receive, note_and_send)
            group.cancel_scope.cancel()
        if begun and not complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end_after(self, scope: anyio.CancelScope, seconds: float) -> None:
        """Cancel `scope` when `seconds` have passed since the server began to end."""
        await self._ending.wait()
        with anyio.move_on_after(seconds):
            await anyio.sleep_forever()
        scope.cancel()
