"""Lets go of a running command, so that it continues in the background."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anyio import CancelScope


class Handover:
    """Hands over a running command: `Commands.run` returns at once, and the command continues.

    `request` and `run` are called in the same event loop.
    """

    def __init__(self) -> None:
        self._scope: CancelScope | None = None
        self._asked = False

    def request(self) -> None:
        """Ask `run` to hand the command over, at once or as soon as it runs."""
        self._asked = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait_for_request(self, end: Awaitable[None]) -> bool:
        """Wait, in `run`, for the end of the command. Return True if it must be handed over."""
        from anyio import CancelScope  # names of agents are completed without it

        scope = self._scope = CancelScope()
        with scope:
            if self._asked:
                scope.cancel()
            try:
                await end
            finally:
                self._scope = None
        return scope.cancelled_caught
