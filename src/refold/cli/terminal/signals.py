"""Ctrl+C where it comes as a signal, and the signals that end us."""

import signal
from collections.abc import Awaitable, Callable

import anyio


async def hearing(
    doing: Callable[[], Awaitable[None]], on_interrupt: Callable[[], Awaitable[None]]
) -> int:
    """Do it, and hear signals meanwhile. The exit code comes back."""
    code = 0

    async def hear() -> None:
        nonlocal code
        ours = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with anyio.open_signal_receiver(*ours) as signals:
            async for number in signals:
                if number != signal.SIGINT:
                    code = 128 + number
                    group.cancel_scope.cancel()
                    return
                await on_interrupt()

    async with anyio.create_task_group() as group:
        group.start_soon(hear)
        await doing()
        group.cancel_scope.cancel()
    return code
