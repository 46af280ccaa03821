"""Lets a running command continue in the background."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anyio import CancelScope


class Handover:
    """Lets `Commands.run` return while its command continues in the background.

    `request` and `Commands.run` must be called in the same event loop.
    """

    def __init__(self) -> None:
        self._scope: CancelScope | None = None
        self._is_requested = False

    def request(self) -> None:
        """Make `Commands.run` return now, or as soon as the command has started."""
        self._is_requested = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait_for_request(self, end: Awaitable[None]) -> bool:
        """Wait until `end` or `request`. Return True if `request` was first.

        `Commands.run` calls this; `end` waits for the end of its command.
        """
        from anyio import CancelScope  # completing the names of agents does not need it

        scope = self._scope = CancelScope()
        with scope:
            if self._is_requested:
                scope.cancel()
            try:
                await end
            finally:
                self._scope = None
        return scope.cancelled_caught
