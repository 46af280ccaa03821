"""Serves one agent over stdin and stdout, until stdin ends or a signal comes.

The tools are in `task_tools`. The SDK reads and writes, and keeps stdout for the protocol.
"""

import signal
from collections.abc import Callable
from pathlib import Path

import anyio

from refold.task_server.delegated_tasks import DelegatedTasks, LaunchAt
from refold.task_server.task_tools import server


async def serve(root: Path, launch_at: LaunchAt, leave: Callable[[], None]) -> None:
    """Tasks work in `root` and below it; those that run at the end are stopped.

    At a signal `leave` ends the process: a thread of the SDK waits for stdin, and nothing
    but a line or the end of stdin wakes it.
    """
    async with anyio.create_task_group() as group:
        tasks = DelegatedTasks(root, launch_at, group)
        group.start_soon(_at_a_signal, tasks, leave)
        await server(tasks).run_stdio_async()
        await tasks.close()
        group.cancel_scope.cancel()


async def _at_a_signal(tasks: DelegatedTasks, leave: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            await tasks.close()
            leave()
