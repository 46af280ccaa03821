"""Shows a running `!command` on the full screen: posts its newest output as messages.

`console.pty` runs it and decides when it gets the terminal. `transcript` lays its output out.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from refold.console.pty import PtyCommand
from refold.tui.messages import Message, ShellKey, ShellShown
from refold.views.strip_escapes import render_lines

_TAIL_BYTES = 8 * 1024  # the part of the output that is shown while it runs


class ShellDisplay:
    """Implements `pty.CommandDisplay`."""

    def __init__(
        self,
        command: str,
        post: Callable[[Message], None],
        columns: Callable[[], int],
        lend_terminal: Callable[[], AbstractAsyncContextManager[object]],
    ) -> None:
        self._command, self._post = command, post
        self.columns, self.lend_terminal = columns, lend_terminal
        self._tail = b""
        self._running: PtyCommand | None = None

    def note_start(self, running: PtyCommand) -> None:
        self._running = running
        self._post(ShellShown(self._command, ""))

    def show(self, piece: bytes) -> None:
        """Add a piece of the output, and show the end of the output."""
        self._tail = (self._tail + piece)[-_TAIL_BYTES:]
        text = render_lines(self._tail.decode(errors="replace"))
        self._post(ShellShown(self._command, text))

    def press(self, key: ShellKey) -> None:
        """Interrupt the command or connect it to the terminal. Ignore keys before it has
        started.
        """
        if self._running is None:
            return
        if key.name == "interrupt":
            self._running.interrupt()
        else:
            self._running.attach()
