"""The claims of a worker: each is the right to run one session.

Notifications of the database bring wakes (there is work) and stops to the claims.
`session_runner` and `temporal_runner` use this module. They decide which session a worker
gets, and when its claim ends.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress

import anyio
import msgspec
from msgspec import Struct

from refold.cluster.database import Database, Notification
from refold.errors import JournalError

WAKE_CHANNEL, STOP_CHANNEL = "wake", "stop"
_STOP_POLL_SECONDS = 0.05


class Stop(Struct, frozen=True):
    """The payload of a notification that asks a worker to cancel its claim on this session."""

    session: str
    reason: str


class WorkerClaim:
    """Implements `SessionClaim`: the right of this worker to run a session.

    `acknowledge` is awaited when a wake was noticed, before `wait_for_wake` returns, and
    `release` at the end of the claim. `unfinished` says that the session still had work
    then.
    """

    def __init__(
        self,
        session: str,
        number: int,
        *,
        acknowledge: Callable[["WorkerClaim"], Awaitable[None]],
        release: Callable[["WorkerClaim"], Awaitable[None]],
    ) -> None:
        self.session = session
        self.number = number
        self._acknowledge = acknowledge
        self._release = release
        self._reason = ""  # of the cancellation
        self.unfinished = False
        self._cancelled = anyio.Event()
        self._woken = anyio.Event()
        self._woken.set()  # a session may have been woken before it was claimed

    async def wait_for_wake(self) -> None:
        """Wait until the session is woken, and acknowledge the wake.

        If the acknowledgement raises `JournalError`, the next call tries again at once.
        """
        await self._woken.wait()
        self._woken = anyio.Event()
        try:
            await self._acknowledge(self)
        except JournalError:
            self._woken.set()
            raise

    async def wait_for_cancel(self) -> str:
        await self._cancelled.wait()
        return self._reason

    async def end(self, *, unfinished: bool = False) -> None:
        self.unfinished = unfinished
        await self._release(self)

    def wake(self) -> None:
        self._woken.set()

    def cancel(self, reason: str = "") -> None:
        self._reason = self._reason or reason
        self._cancelled.set()


class WorkerClaims:
    """The claims of this worker, by number. `take_new` yields each claim once it was added."""

    def __init__(self) -> None:
        self._claims = dict[int, WorkerClaim]()
        self._new = deque[WorkerClaim]()
        self._arrived = anyio.Event()
        self._removed = anyio.Event()  # set when a claim is removed, and replaced

    def __len__(self) -> int:
        return len(self._claims)

    @property
    def all(self) -> Sequence[WorkerClaim]:
        return tuple(self._claims.values())

    @property
    def numbers(self) -> Sequence[int]:
        return tuple(self._claims)

    def of_session(self, session: str) -> Sequence[WorkerClaim]:
        return [claim for claim in self.all if claim.session == session]

    def add(self, claim: WorkerClaim) -> None:
        self._claims[claim.number] = claim
        self._new.append(claim)
        self._arrived.set()

    def remove(self, claim: WorkerClaim) -> None:
        self._claims.pop(claim.number, None)
        self._removed.set()
        self._removed = anyio.Event()

    async def wait_removed(self) -> None:
        """Wait until a claim is removed."""
        await self._removed.wait()

    async def take_new(self) -> AsyncGenerator[WorkerClaim]:
        """Yield each claim that is added, once."""
        while True:
            while self._new:
                yield self._new.popleft()
            self._arrived = anyio.Event()
            await self._arrived.wait()

    def wake_all(self) -> None:
        """Make every claim look for orders, because a wake may have been lost."""
        for claim in self.all:
            claim.wake()

    def cancel_all(self) -> None:
        for claim in self.all:
            claim.cancel()

    def stop(self, payload: str) -> None:
        """Cancel the claims of this worker on the session that the encoded `Stop` names."""
        stop = msgspec.json.decode(payload, type=Stop)
        for claim in self.of_session(stop.session):
            claim.cancel(stop.reason)


async def stop_claim(
    database: Database, stop: Stop, is_claimed: Callable[[], Awaitable[bool]]
) -> None:
    """Ask the worker of a session to cancel its claim, repeatedly until `is_claimed`
    returns False.

    A claim is the right of one worker to run the session.
    """
    notify = "select pg_notify(refold.channel($1), $2)"
    payload = msgspec.json.encode(stop).decode()
    while await is_claimed():
        await database.run(lambda db: db.execute(notify, STOP_CHANNEL, payload))
        await anyio.sleep(_STOP_POLL_SECONDS)


async def follow_notifications(
    database: Database, on_notification: Callable[[Notification], None]
) -> None:
    """Receive wakes and stops until this is cancelled."""
    async with database.listen(WAKE_CHANNEL, STOP_CHANNEL) as notifications:
        async for notification in notifications:
            with suppress(msgspec.DecodeError):  # forged by another login of the database
                on_notification(notification)
