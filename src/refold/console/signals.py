"""Handles signals: Ctrl+C, Ctrl+Z, and those that end the process.

Before the process is suspended, it restores the terminal modes of the shell. When it continues,
it sets its own modes again.
"""

import signal
from collections.abc import Awaitable, Callable

import anyio

from refold.console.keyboard_modes import suspend, terminal_modes

_MAX_END_SECONDS = 5.0  # for ending the current work properly
_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


async def _do_nothing(reason: str) -> None:
    return


async def run_with_signals(
    function: Callable[[], Awaitable[None]],
    on_interrupt: Callable[[], Awaitable[None]],
    on_end: Callable[[str], Awaitable[None]] = _do_nothing,
    suspend_hooks: tuple[Callable[[], None], Callable[[], None]] | None = None,
) -> int:
    """Run `function` and handle signals meanwhile. Return the exit code.

    Ctrl+C calls `on_interrupt`. A signal that ends the process first calls `on_end`, with the
    reason, to end the current work. The two `suspend_hooks` are called before Ctrl+Z suspends
    the process and after it continues.
    """
    code = 0
    modes_at_start = terminal_modes(0)

    async def handle_signals() -> None:
        nonlocal code
        async for number in signals:
            if number == signal.SIGTSTP and suspend_hooks is not None:
                before, after = suspend_hooks
                before()
                suspend(modes_at_start)
                after()
            elif number in _END_SIGNALS:
                code = 128 + number  # as shells report it
                group.start_soon(end, f"stopped by {signal.Signals(number).name}")
            elif not code:  # the process is not ending yet
                await on_interrupt()

    async def end(reason: str) -> None:
        with anyio.move_on_after(_MAX_END_SECONDS):
            await on_end(reason)
        group.cancel_scope.cancel()

    with anyio.open_signal_receiver(
        *_signals_to_catch(stops=suspend_hooks is not None)
    ) as signals:
        async with anyio.create_task_group() as group:
            group.start_soon(handle_signals)
            await function()
            if not code:  # otherwise `end` is still running
                group.cancel_scope.cancel()
    return code


def _signals_to_catch(*, stops: bool) -> tuple[signal.Signals, ...]:
    """Return the signals that refold handles; with `stops`, also that of Ctrl+Z."""
    own_signals = (signal.SIGINT, *_END_SIGNALS)
    # If SIGTSTP was ignored at the start, it stays ignored.
    can_stop = stops and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
    return (*own_signals, signal.SIGTSTP) if can_stop else own_signals
