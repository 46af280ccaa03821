"""Shows the progress of a task in one line on stderr, while a user waits for the answer.

The line is shown only with output formats that print nothing before the end, and only if stderr
is a terminal that can erase a line and this process is in its foreground. The line is erased
before other output on stderr, and at the end of the turn.
"""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

import anyio

from refold.client.session import Session

if TYPE_CHECKING:
    from refold.console.printer import Printer
    from refold.views.screen.screen import Screen
    from refold.views.styled import Line

_FIRST_SECONDS = 1.0  # before the line appears
_DRAW_SECONDS = 0.25
_MAX_WAITING_NEWS = 256  # live news that wait; more are left out


class ProgressLine:
    """A line with the progress of a session. `printer` draws and erases it."""

    def __init__(self, printer: "Printer") -> None:
        self._printer = printer
        self._scope = anyio.CancelScope()  # of `show`; `end` cancels it
        self._began = time.monotonic()

    async def show(self, session: Session) -> None:
        """Show the line until `end` is called."""
        from refold.views.screen.screen import apply_frame, screen_at

        screen = screen_at(session.view)
        watch = session.watch(live=_MAX_WAITING_NEWS)

        async def draw() -> None:
            """Draw the line repeatedly until this task is cancelled."""
            await anyio.sleep(_FIRST_SECONDS)
            while True:
                if _is_in_foreground(sys.stderr):
                    seconds = time.monotonic() - self._began
                    self._printer.show_status(progress_row(screen, session, seconds))
                await anyio.sleep(_DRAW_SECONDS)

        with self._scope:
            async with anyio.create_task_group() as group:
                group.start_soon(draw)
                async for frame in watch.frames():
                    screen = apply_frame(screen, frame)
                group.cancel_scope.cancel()
        watch.close()

    def end(self) -> None:
        self._scope.cancel()
        self._printer.clear_status()

    @contextmanager
    def keep_below_messages(self) -> Generator[None]:
        """Erase the line before anything else is printed on stderr inside the block."""
        with redirect_stderr(cast("TextIO", _ErasingStream(sys.stderr, self._printer))):
            try:
                yield
            finally:
                self.end()


class _ErasingStream:
    """A stream that erases the status line of `printer` before each write."""

    def __init__(self, stream: TextIO, printer: "Printer") -> None:
        self._stream, self._printer = stream, printer

    def write(self, text: str) -> int:
        self._printer.clear_status()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def progress_line_for(display: str) -> ProgressLine | None:
    """Return a progress line for stderr; None if stderr cannot erase a line.

    Return None, too, if `display` is "plain".
    """
    if display == "plain":
        return None
    printer = _erasing_printer()
    return ProgressLine(printer) if printer is not None else None


class CountLine:
    """A line on stderr with the progress of a long command: "`noun`: 3 of 10".

    Call the object with the number of done items and the number of all items. The line appears
    after some time, only at a terminal, and `end` erases it.
    """

    def __init__(self, noun: str) -> None:
        self._noun, self._began = noun, time.monotonic()
        self._next_draw_at = self._began + _FIRST_SECONDS
        self._printer: Printer | None = None

    def __call__(self, done: int, total: int) -> None:
        """Draw the line, unless it was drawn a moment ago."""
        now = time.monotonic()
        if now < self._next_draw_at:
            return
        self._next_draw_at = now + _DRAW_SECONDS
        if self._printer is None and sys.stderr.isatty():
            self._printer = _erasing_printer()
        if self._printer is not None and _is_in_foreground(sys.stderr):
            self._printer.show_status((("dim", f"{self._noun}: {done:,} of {total:,}"),))

    def end(self) -> None:
        if self._printer is not None:
            self._printer.clear_status()


def _erasing_printer() -> "Printer | None":
    """Return a printer to stderr; None unless stderr is a terminal that can erase a line."""
    from refold.console.capabilities import detect_capabilities
    from refold.console.printer import Printer

    capabilities = detect_capabilities(sys.stderr, os.environ, display="status")
    return Printer(sys.stderr, capabilities) if capabilities.moves else None


def _is_in_foreground(stream: TextIO) -> bool:
    with suppress(OSError, ValueError):  # no controlling terminal
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    return False


def progress_row(screen: "Screen", session: Session, seconds: float) -> "Line":
    """Return a line with the seconds, the usage and the current activity of the task."""
    from refold.views.call_summary import label
    from refold.views.children_list import running_summary
    from refold.views.number_format import count_with_noun, duration, tokens
    from refold.views.screen.blocks import CallBlock

    view = screen.view
    usage = view.turn.spent.usage
    running_calls = [
        block.call
        for block in screen.open
        if isinstance(block, CallBlock) and block.stage == "running"
    ]
    if running_calls:
        newest = running_calls[-1]
        others = len(running_calls) - 1
        activity = label(newest, session.tool(newest.name))
        if others:
            activity += f" and {others} more"
    else:
        # `coming` is the part of a response that has arrived
        activity = screen.status.doing or ("writing" if screen.coming else "working")
    progress_by_address = {progress.node: progress for progress in screen.moved}
    parts = (
        running_summary(view.children, progress_by_address, view.turn.seq),
        count_with_noun(view.turn.steps, "step") if view.turn.steps else "",
        f"{tokens(usage.input + usage.output)} tokens" if usage.input else "",
    )
    facts = "".join(f"{part} · " for part in (duration(seconds), *parts) if part)
    return (("dim", facts), ("plain", activity))
