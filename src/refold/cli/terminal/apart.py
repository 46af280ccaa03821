"""What a command reads or writes beside the session, until it is done or Ctrl+C ends it."""

from collections.abc import Callable
from typing import TypeVar

import anyio

from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.reading import TerminalReader

T = TypeVar("T")


class Apart:
    def __init__(self, paper: Paper, reading: TerminalReader) -> None:
        self._paper, self._reading = paper, reading
        self._scope: anyio.CancelScope | None = None

    async def do(self, work: Callable[[], T], *, leaves_nothing: bool = False) -> T | None:
        """Do it in a thread. None, and a line that says so, if it was stopped.

        It hears of that where it calls `anyio.from_thread.check_cancelled`, and is waited
        for until then; or not at all, where it `leaves_nothing` behind.
        """
        try:
            with self._reading.quiet(), anyio.CancelScope() as self._scope:
                return await anyio.to_thread.run_sync(
                    work, abandon_on_cancel=leaves_nothing
                )
        finally:
            self._scope = None
        self._paper.echoed()
        self._paper.say("stopped", "dim")
        return None

    def stop(self) -> bool:
        """Ctrl+C came. False: it was meant for something else."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True
