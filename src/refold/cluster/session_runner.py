"""A `Runner` whose queue is that of Procrastinate, in the database of the sessions.

A job gives a session to the worker that fetches it. At most one job of a session runs and
one waits, and the number of a claim is the number of its job. Each worker updates a
heartbeat, and the sessions of a worker without a current heartbeat are given to others.

refold uses the tables and functions of Procrastinate (`schema.versions.r0002_orders` and
`r0003_people`), but not its worker. After a lost connection, a worker of Procrastinate
waits for its running jobs without updating its heartbeat.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import anyio

from refold.cluster.claims import (
    Stop,
    WorkerClaim,
    WorkerClaims,
    follow_notifications,
    stop_claim,
)
from refold.cluster.database import Database, Notification
from refold.cluster.forgotten_sessions import FORGOTTEN_SECONDS, ForgottenSessions
from refold.errors import JournalError

BEAT_SECONDS = 1.0
DEAD_SECONDS = 4.0  # without a beat, after which a worker's sessions are given to others
MAX_CLAIMS = 200  # of one worker
_POLL_SECONDS = 2.0  # between two looks for jobs; a notification ends the wait


class ProcrastinateRunner:
    """Wakes sessions, and, while `run` runs, holds the claims of this worker.

    `on_full` is called while sessions wait because the tenant may not run more of them.
    """

    def __init__(
        self,
        database: Database,
        *,
        beat_seconds: float = BEAT_SECONDS,
        dead_seconds: float = DEAD_SECONDS,
        max_claims: int = MAX_CLAIMS,
        forgotten_seconds: float = FORGOTTEN_SECONDS,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        self._database, self._max_claims = database, max_claims
        self._on_full = on_full
        self._beat_seconds, self._dead_seconds = beat_seconds, dead_seconds
        self._claims = WorkerClaims()
        self._forgotten = ForgottenSessions(
            database,
            self.wake,
            lambda session: bool(self._claims.of_session(session)),
            forgotten_seconds,
        )
        self._ended = dict[int, WorkerClaim]()  # ended claims whose jobs must be finished
        self._worker = 0
        self._steady_since = time.monotonic()  # since then each beat came in time
        self._news = anyio.Event()
        self._is_draining = False
        self._released = anyio.Event()  # set when the job of a claim was finished

    async def wake(self, session: str) -> None:
        query = "select refold.wake($1)"
        await self._database.run(lambda db: db.execute(query, session))

    async def stop(self, session: str, reason: str = "") -> None:
        """Cancel the claim that a worker has on the session, if any, and wait for its end."""
        query = "select refold.is_claimed($1)"

        async def is_claimed() -> bool:
            return await self._database.run(lambda db: db.fetchval(query, session))

        await stop_claim(self._database, Stop(session, reason), is_claimed)

    def claims(self) -> AsyncGenerator[WorkerClaim]:
        return self._claims.take_new()

    async def run(self) -> None:
        """Fetch claims until this is cancelled. Then give the remaining claims to other
        workers.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._beat)
                group.start_soon(
                    follow_notifications, self._database, self._on_notification
                )
                group.start_soon(self._fetch)
                group.start_soon(self._take_over)
                group.start_soon(self._forgotten.run)
        finally:
            query = "select refold.unregister_worker($1)"
            with anyio.CancelScope(shield=True), suppress(JournalError):
                await self._database.run(lambda db: db.execute(query, self._worker))

    async def drain(self) -> None:
        """Cancel the claims of this worker, and take no further ones; wait until the claims
        have ended.
        """
        self._is_draining = True
        self._claims.cancel_all()
        while self._claims or self._ended:
            await self._released.wait()
            self._released = anyio.Event()

    async def _acknowledge(self, claim: WorkerClaim) -> None:
        # An order that is placed after this leads to another notification or claim.
        query = "select refold.acknowledge_wakes($1)"
        await self._database.run(lambda db: db.execute(query, claim.session))

    async def _release(self, claim: WorkerClaim) -> None:
        """Remove the claim from those of this worker, and finish its job."""
        self._ended[claim.number] = claim
        self._claims.remove(claim)
        with suppress(JournalError):  # tried again with the next beat
            await self._finish_ended()

    async def _finish_ended(self) -> None:
        """Finish the jobs of ended claims; wake sessions that still have something to do."""
        query = "select refold.end_claim($1)"
        for number, claim in tuple(self._ended.items()):
            if claim.unfinished:
                await self.wake(claim.session)
            await self._database.run(lambda db, n=number: db.execute(query, n))
            self._ended.pop(number, None)
            self._released.set()
            self._look_for_jobs()

    async def _beat(self) -> None:
        """Update the heartbeat of this worker again and again."""
        last_beat = time.monotonic()
        while True:
            with suppress(JournalError):
                await self._beat_once()
                await self._finish_ended()
                now = time.monotonic()
                # After a late beat, the beats of other workers may have been late, too.
                if now - last_beat > self._dead_seconds / 2:
                    self._steady_since = now
                last_beat = now
            await anyio.sleep(self._beat_seconds)

    async def _beat_once(self) -> None:
        """Update the heartbeat, or register this worker if it was declared dead or is new."""
        query = "select refold.beat($1)"
        if self._worker:
            is_known = await self._database.run(lambda db: db.fetchval(query, self._worker))
            if is_known:
                return
        self._claims.cancel_all()  # others have its sessions now
        register = "select refold.register_worker()"
        self._worker = await self._database.run(lambda db: db.fetchval(register))
        self._look_for_jobs()

    def _on_notification(self, notification: Notification) -> None:
        """Pass a wake or a stop to the claim that it is for, and look for jobs if necessary."""
        match notification:
            case Notification("wake", session):
                woken = self._claims.of_session(session)
                for claim in woken:
                    claim.wake()
                if not woken:
                    self._look_for_jobs()
            case Notification("stop", payload):
                self._claims.stop(payload)
            case _:  # the connection was restored, and notifications may have been lost
                self._claims.wake_all()
                self._look_for_jobs()

    def _look_for_jobs(self) -> None:
        self._news.set()

    async def _fetch(self) -> None:
        """Take claims while there is room: after news, and each `_POLL_SECONDS`."""
        while True:
            with anyio.move_on_after(_POLL_SECONDS):
                await self._news.wait()
            self._news = anyio.Event()
            with suppress(JournalError):
                while self._has_room and await self._fetch_one():
                    pass

    @property
    def _has_room(self) -> bool:
        is_ready = bool(self._worker) and not self._is_draining
        return is_ready and len(self._claims) < self._max_claims

    async def _fetch_one(self) -> bool:
        """Take a claim (the right to run a session) from the queue. Return False if no
        claim was taken.
        """
        claim_numbers = [*self._claims.numbers, *self._ended]
        query = "select number, session from refold.fetch_claim($1, $2)"
        worker = self._worker
        row: Any = await self._database.run(
            lambda db: db.fetchrow(query, worker, claim_numbers)
        )
        if row is None:
            return False
        if row["session"] is None:  # sessions wait, but the tenant may not run more of them
            self._on_full()
            return False
        claim = WorkerClaim(
            row["session"], row["number"],
            acknowledge=self._acknowledge, release=self._release,
        )  # fmt: skip
        if self._is_draining:  # the drain began during the query: give the claim back
            claim.unfinished = True
            self._ended[claim.number] = claim
            return False
        self._claims.add(claim)
        return True

    async def _take_over(self) -> None:
        """Give the sessions of workers without a current heartbeat to others, again and
        again.
        """
        query = "select refold.take_over($1)"
        seconds = self._dead_seconds
        while True:
            await anyio.sleep(self._beat_seconds)
            # After an outage of the database all heartbeats are old: give workers time.
            if time.monotonic() - self._steady_since > seconds:
                with suppress(JournalError):
                    await self._database.run(lambda db: db.fetchval(query, seconds))
