"""The tools of `task_tools` over streamable HTTP, for several programs at a time.

A program before 2026-07-28 has an MCP session, and a newer one has none. So what keeps the
tasks of two programs apart is the id of a task, which cannot be guessed. Who may come in is
decided in front of this: `refold.server.guard`, which also listens. `stdio` serves one program.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from mcp.server.transport_security import TransportSecuritySettings
from msgspec import Struct
from starlette.applications import Starlette

from refold.task_server.delegated_tasks import DelegatedTasks, LaunchAt
from refold.task_server.task_tools import server

PATH = "/mcp"
_MOST_SESSIONS = 64
_UNFOLLOWED = 3600.0  # seconds that a question waits for a program to come for it


class Served(Struct, frozen=True):
    """`leave` stops all tasks: whoever follows one is told how it ended."""

    app: Starlette
    leave: Callable[[], Awaitable[None]]


@asynccontextmanager
async def serving(root: Path, launch_at: LaunchAt) -> AsyncGenerator[Served]:
    """An ASGI application. Tasks work in `root` and below it, and end when this is left."""
    async with anyio.create_task_group() as group:
        tasks = DelegatedTasks(root, launch_at, group, _UNFOLLOWED)
        made = server(tasks)
        app = made.streamable_http_app(
            streamable_http_path=PATH,
            max_sessions=_MOST_SESSIONS,
            # The guard in front of it knows the names of the server.
            transport_security=TransportSecuritySettings(
                enable_dns_rebinding_protection=False
            ),
        )
        async with made.session_manager.run():
            yield Served(app, tasks.close)
        await tasks.close()
        group.cancel_scope.cancel()
