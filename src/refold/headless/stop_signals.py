"""Handles the signals that end a task without a terminal.

Before a session exists, a signal is recorded, or raised as `KeyboardInterrupt`. In a session,
the first signal interrupts the turn as a user would; a second one cancels it at once. A signal
that was ignored when the process started stays ignored, as `nohup` and `&` in scripts expect.
"""

import signal
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import anyio

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signals_not_ignored() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a task, except those that this process ignores."""
    return tuple(
        number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    )


def signal_text(number: int) -> str:
    return f"stopped by {signal.Signals(number).name}"


class StopSignals:
    """Records signals. `reason` describes the last one; "" if none arrived.

    `interrupt_work` is called at the first signal, with its description; it returns False if no
    work runs. `on_signal` is called at each signal, before `interrupt_work`.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.interrupt_work: Callable[[str], Awaitable[bool]] | None = None
        self.on_signal: Callable[[], None] = lambda: None
        self._raises_interrupts = False
        self._scope: anyio.CancelScope | None = None  # of the block of `cancel_on_signal`

    def listen(self) -> None:
        """Record signals from now on. Call this first in the process, because it is fast."""
        for number in signals_not_ignored():
            signal.signal(number, self._record_signal)

    def raise_interrupts(self) -> None:
        """Raise `KeyboardInterrupt` at signals from now on, or now if one has arrived."""
        self._raises_interrupts = True
        if self.reason:
            raise KeyboardInterrupt(self.reason)

    @asynccontextmanager
    async def cancel_on_signal(self) -> AsyncGenerator[None]:
        """Cancel the block at the second signal, or at the first if no work runs."""
        import anyio  # late, after `listen`: the import is slow

        with anyio.open_signal_receiver(*signals_not_ignored()) as signals:
            async with anyio.create_task_group() as group:
                with anyio.CancelScope() as self._scope:
                    group.start_soon(self._handle_signals, signals)
                    yield
                self._scope = None
                group.cancel_scope.cancel()  # ends `_handle_signals`

    def _record_signal(self, number: int, _frame: FrameType | None) -> None:
        """Record a signal. After `raise_interrupts`, raise `KeyboardInterrupt`, too.

        This is a handler of `signal.signal`.
        """
        self.reason = signal_text(number)
        if self._raises_interrupts:
            raise KeyboardInterrupt(self.reason)

    async def _handle_signals(self, signals: "AsyncIterable[signal.Signals]") -> None:
        """Interrupt the work at the first signal. Cancel at the second, or if no work runs."""
        async for number in signals:
            is_first = not self.reason
            self.reason = signal_text(number)
            self.on_signal()
            is_interrupted = False
            if is_first and self.interrupt_work is not None:
                is_interrupted = await self.interrupt_work(self.reason)
            if not is_interrupted and self._scope is not None:
                self._scope.cancel()
