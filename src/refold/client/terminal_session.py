"""A session that is open in a terminal, shared with clients that join it.

It differs from one that a host runs: only its terminal changes the directory.
"""

from collections.abc import Callable

from refold.client.feed import Follower
from refold.client.protocol import Order, SetDirectory
from refold.client.session import Session
from refold.client.shared_session import SharedSession
from refold.errors import BadInput

_ITS_OWN = "this session is open in a terminal: change its directory there"


class TerminalSession(SharedSession):
    def __init__(self, session: Session, wake: Callable[[], None]) -> None:
        super().__init__(session, wake)
        # What waits for an answer is asked there, too; only other turns were cut off.
        self.cut_off = self.cut_off and not session.requests

    async def _obey(self, order: Order, follower: Follower) -> bool:
        if isinstance(order, SetDirectory):
            raise BadInput(_ITS_OWN)
        return await super()._obey(order, follower)
