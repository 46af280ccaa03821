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
    """Records signals. `why` describes the last one; "" if none arrived.

    `gently` is called at the first signal to interrupt the running work; it returns False if no
    work runs. `hurry` is called at each signal, before `gently`.
    """

    def __init__(self) -> None:
        self.why = ""
        self.gently: Callable[[str], Awaitable[bool]] | None = None
        self.hurry: Callable[[], None] = lambda: None
        self._raises = False
        self._scope: anyio.CancelScope | None = None

    def listen(self) -> None:
        """Record signals from now on. It is fast, so call it first in the process."""
        for number in signals_not_ignored():
            signal.signal(number, self._record_signal)

    def raise_interrupts(self) -> None:
        """Raise `KeyboardInterrupt` at signals from now on, or now if one has arrived."""
        self._raises = True
        if self.why:
            raise KeyboardInterrupt(self.why)

    @asynccontextmanager
    async def cancel_on_signal(self) -> AsyncGenerator[None]:
        """Cancel the block at the second signal, or at the first if `gently` returns False."""
        import anyio  # late, after `listen`: the import is slow

        with anyio.open_signal_receiver(*signals_not_ignored()) as news:
            async with anyio.create_task_group() as group:
                with anyio.CancelScope() as self._scope:
                    group.start_soon(self._handle_signals, news)
                    yield
                self._scope = None
                group.cancel_scope.cancel()

    def _record_signal(self, number: int, _frame: FrameType | None) -> None:
        self.why = signal_text(number)
        if self._raises:
            raise KeyboardInterrupt(self.why)

    async def _handle_signals(self, news: "AsyncIterable[signal.Signals]") -> None:
        """Interrupt the work at the first signal. Cancel at the second, or if no work runs."""
        async for number in news:
            is_second = bool(self.why)
            self.why = signal_text(number)
            self.hurry()
            if is_second or self.gently is None or not await self.gently(self.why):
                self._cancel()

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
