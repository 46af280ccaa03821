"""The interface for what takes the orders of a session, so that `Session` serves every client.

`client.dispatch` carries orders out in this process; `client.remote_session` sends them to
the process that has the session open. `client.protocol` defines the orders.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from refold.client.protocol import (
    CompactConversation,
    Continue,
    Fork,
    Order,
    Rewind,
    ShellOutput,
    UploadFile,
)
from refold.errors import BadInput, RefoldError

if TYPE_CHECKING:
    from refold.client.launch import OpenedSession
    from refold.views.rewind_points import RewindReport

# Each of these orders has two effects if it is carried out twice. Of the other orders, a
# message has a key by which a copy is found, and the rest set a value.
DONE_ONCE_ORDERS = Fork, Continue, CompactConversation, Rewind, ShellOutput, UploadFile


class OrderResult(Struct, frozen=True):
    """What an order did. `changed` is False if it had no effect."""

    changed: bool
    copy: str = ""  # the id of the session that `Fork` made
    uploaded: str = ""  # the path at which `UploadFile` stored the file
    rewound: "RewindReport | None" = None  # the result of `Rewind`
    # The result of `SetDirectory`: the session, opened in the other directory.
    opened: "OpenedSession | None" = None


SendOrder: TypeAlias = Callable[[Order], Awaitable[OrderResult]]


class AlreadyAnswered(BadInput):
    """Raised if another client answered first. `Session.answer` returns False in this case."""


def error_of_order(name: str, reason: str, otherwise: type[RefoldError]) -> RefoldError:
    """Return the error with which another process refused an order.

    `name` is the name of the error's class. The result has this class only if callers treat
    the class in a special way. For any other name, the result has the class `otherwise`.
    """
    from refold.session.upload import UPLOAD_REFUSALS  # few orders are refused

    kinds = {kind.__name__: kind for kind in (BadInput, AlreadyAnswered, *UPLOAD_REFUSALS)}
    return kinds.get(name, otherwise)(reason)


class OrderSink(Protocol):
    """Takes the orders for one session: runs the session's turns, or has another process
    run them.
    """

    @property
    def owns_turns(self) -> bool:
        """Whether turns run in this process, and end with it."""
        ...

    @property
    def sees_files(self) -> bool:
        """Whether this process can reach the files of the session."""
        ...

    @property
    def end_reason(self) -> str:
        """The reason why the sink takes no more orders; "" while it takes orders."""
        ...

    @property
    def rejoin_command(self) -> str:
        """The command that joins the session again; "" if its turns run in this process."""
        ...

    @property
    def model(self) -> str:
        """The model of the next turn; "" if it is the one in the settings."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether an order that is not recorded yet waits for `step`."""
        ...

    async def send(self, order: Order) -> OrderResult:
        """Take an order. Raises `BadInput` if the order cannot be carried out."""
        ...

    async def step(self) -> bool:
        """Carry out the next order, or wait until another process has carried it out.

        Return False if no order waits, or if the turn waits for the user.
        """
        ...

    async def compact(self, order: CompactConversation) -> bool:
        """Compact the conversation between two turns, and wait until that is done.

        Return False if the compaction was stopped.
        """
        ...

    def forget(self) -> None:
        """Drop the orders that wait for `step`."""
        ...
