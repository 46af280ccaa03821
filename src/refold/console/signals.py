"""Signals: Ctrl+C, Ctrl+Z, and those that end the process.

A process that is suspended restores the terminal for the shell, and sets its own modes again when it
continues.
"""

import signal
from collections.abc import Awaitable, Callable

import anyio

from refold.console.keys import suspend, terminal_modes

_MAX_END_SECONDS = 5.0  # seconds to end the current work in good order
_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


async def _do_nothing(reason: str) -> None:
    return


async def run_with_signals(
    function: Callable[[], Awaitable[None]],
    on_interrupt: Callable[[], Awaitable[None]],
    on_end: Callable[[str], Awaitable[None]] = _do_nothing,
    suspend_hooks: tuple[Callable[[], None], Callable[[], None]] | None = None,
) -> int:
    """Run `function` while signals are handled. Return the exit code.

    `on_end` ends the current work, with the reason as argument. The `suspend_hooks` are called
    before Ctrl+Z takes effect and after the process continues.
    """
    code, settings = 0, terminal_modes(0)

    async def handle_signals() -> None:
        nonlocal code
        async for number in news:
            if number == signal.SIGTSTP and suspend_hooks is not None:
                before, after = suspend_hooks
                before()
                suspend(settings)
                after()
            elif number in _END_SIGNALS:
                code = 128 + number
                group.start_soon(end, f"stopped by {signal.Signals(number).name}")
            elif not code:
                await on_interrupt()

    async def end(reason: str) -> None:
        with anyio.move_on_after(_MAX_END_SECONDS):
            await on_end(reason)
        group.cancel_scope.cancel()

    with anyio.open_signal_receiver(
        *_catch_signals(stops=suspend_hooks is not None)
    ) as news:
        async with anyio.create_task_group() as group:
            group.start_soon(handle_signals)
            await function()
            if not code:
                group.cancel_scope.cancel()
    return code


def _catch_signals(*, stops: bool) -> tuple[signal.Signals, ...]:
    own_signals = (signal.SIGINT, *_END_SIGNALS)
    # If SIGTSTP was ignored at the start, it stays ignored.
    can = stops and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
    return (*own_signals, signal.SIGTSTP) if can else own_signals
