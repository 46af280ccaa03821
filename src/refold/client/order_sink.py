"""Where the orders for a session go: a port, so that one `Session` serves every client.

`client.dispatch` carries orders out in this process; `client.remote_session` sends them to the
process that has the session open. `client.protocol` defines the orders themselves.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from refold.client.protocol import CompactConversation, Order
from refold.errors import BadInput

if TYPE_CHECKING:
    from refold.client.launch import OpenedSession
    from refold.views.rewind_points import RewindReport


class OrderResult(Struct, frozen=True):
    """What an order did. `changed` is False if it had no effect."""

    changed: bool
    copy: str = ""  # the id of the session that `Fork` made
    rewound: "RewindReport | None" = None  # by `Rewind`
    opened: "OpenedSession | None" = None  # by `SetDirectory`: the session, opened there


SendOrder: TypeAlias = Callable[[Order], Awaitable[OrderResult]]


class AlreadyAnswered(BadInput):
    """Another client answered first. `Session.answer` returns False then."""


class OrderSink(Protocol):
    """Takes the orders for one session, and runs its turns or waits for them."""

    @property
    def owns_turns(self) -> bool:
        """Whether turns end with this process; otherwise they run in another one."""
        ...

    @property
    def end_reason(self) -> str:
        """Why it takes no more orders; "" while it does."""
        ...

    @property
    def model(self) -> str:
        """The model of the next turn if none is chosen; "": that of the settings here."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether an unrecorded order waits for `step`."""
        ...

    async def send(self, order: Order) -> OrderResult:
        """Take an order. Raises `BadInput` if it cannot be carried out."""
        ...

    async def step(self) -> bool:
        """Carry out the next order, or wait for it.

        Return False if there is none, or if the turn waits for the user.
        """
        ...

    async def compact(self, order: CompactConversation) -> bool:
        """Compact between two turns, and wait for it. False if it was stopped."""
        ...

    def forget(self) -> None:
        """Drop the orders that wait for `step`."""
        ...
