"""A `Runner` whose queue is Temporal: one workflow for a session that has work, one activity that runs it.

A wake is a signal, which starts the workflow if there is none (`session_workflow`). Temporal gives the
activity to a worker, and to another one if its heartbeat is missing. The number of a claim is the
time at which Temporal scheduled this attempt. The database notifies the worker that has the session of
a wake, too, and sooner. Each wake has an id, so that the workflow knows which of them the worker took.

Needs `refold[cluster]`. How to connect (TLS, API key, namespace) is read as Temporal's own tools read
it: from `TEMPORAL_…` variables and its configuration file.
"""

import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
from msgspec import Struct, field
from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RetryConfig, RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from refold.cluster.claims import (
    WAKE_CHANNEL,
    Stop,
    WorkerClaim,
    WorkerClaims,
    follow_notifications,
    stop_claim,
)
from refold.cluster.database import Database, Notification
from refold.cluster.running_slots import RunningSlots
from refold.cluster.session_workflow import (
    ACTIVITY_NAME,
    WAKE_SIGNAL,
    WORKFLOW_NAME,
    SessionWorkflow,
)
from refold.errors import BadInput, Disconnected, JournalError, first

BEAT_SECONDS = 1.0
DEAD_SECONDS = 4.0  # without a heartbeat, after which another worker gets the session
MAX_CLAIMS = 200  # of one worker
_MAX_WAKES = 1_000  # of one claim; Temporal takes 10,000 signals for a workflow
_CALL_TIME = timedelta(seconds=5)
_MAX_RETRY_MILLIS = 3_000  # of one call, after which the caller decides
_RETRY_SECONDS = 0.5
_UNREACHED_SECONDS = 15.0  # without the database, after which others get the sessions
_FULL_TIME = timedelta(
    seconds=2
)  # until a session whose tenant has no more room is tried again
_MAX_DRAIN_TIME = timedelta(days=1)  # the caller of `drain` has a limit of its own
_STOP_SECONDS = 5.0  # for the end of the connection to Temporal
# A worker that was killed is asked for so long before another one continues its workflows.
_STICKY_TIME = timedelta(seconds=1)
_TASK_TIME = timedelta(seconds=3)
FORGOTTEN_SECONDS = 20.0  # an order that waits so long has perhaps no wake
_MAX_FORGOTTEN = (
    20  # sessions at once, the oldest: the others may wait because all are busy
)
_FORGOTTEN_SQL = """
select session from refold.placed_order where tenant = refold.tenant()
  and outcome is null and placed < now() - make_interval(secs => $1)
  group by session order by min(number) limit $2
"""
_EPOCH_START, _ONE_MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class TemporalRunner:
    """Wakes sessions, and, while it runs, holds the claims of this worker.

    `report` is called with what keeps it from running, and `on_full` while sessions wait because the
    tenant may have no more at work.
    """

    def __init__(
        self,
        database: Database,
        address: str,
        *,
        beat_seconds: float = BEAT_SECONDS,
        dead_seconds: float = DEAD_SECONDS,
        forgotten_seconds: float = FORGOTTEN_SECONDS,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._database, self._options = database, _connection_options(address)
        self.place, self._report = f"Temporal at {address}", report
        self._queue = f"refold-{database.tenant}"
        self._beat_seconds, self._dead_seconds = beat_seconds, dead_seconds
        self._forgotten_seconds = forgotten_seconds
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._claims, self._wakes = WorkerClaims(), dict[int, _Wakes]()
        self._slots, self.on_full = RunningSlots(database), _ignore
        self._is_draining = False
        self._reached = time.monotonic()  # when the database answered last

    async def wake(self, session: str) -> None:
        id_ = os.urandom(6).hex()
        notify = "select pg_notify(refold.channel($1), $2)"
        payload = f"{session} {id_}"
        await self._database.run(lambda db: db.execute(notify, WAKE_CHANNEL, payload))
        with self._as_errors():
            client = await self._connect()
            await client.start_workflow(
                WORKFLOW_NAME,
                args=[session, self._dead_seconds, []],
                id=self._workflow_id(session),
                task_queue=self._queue,
                task_timeout=_TASK_TIME,
                start_signal=WAKE_SIGNAL,
                start_signal_args=[id_],
                rpc_timeout=_CALL_TIME,
            )

    async def stop(self, session: str, reason: str = "") -> None:
        await stop_claim(
            self._database, Stop(session, reason), partial(self._is_claimed, session)
        )

    def claims(self) -> AsyncGenerator[WorkerClaim]:
        return self._claims.take_new()

    async def run(self) -> None:
        """Take sessions from Temporal until this is cancelled, and wait for it during outages."""
        async with anyio.create_task_group() as group:
            group.start_soon(follow_notifications, self._database, self._on_notification)
            group.start_soon(self._check_database)
            group.start_soon(self._wake_forgotten)
            while not self._is_draining:
                try:
                    with self._as_errors():
                        await self._run_worker(await self._connect())
                except Disconnected as error:
                    self._report(str(error))
                    await anyio.sleep(_RETRY_SECONDS)

    async def drain(self) -> None:
        """Take no further claims, and wait until the present ones have ended."""
        self._is_draining = True
        self._claims.cancel_all()
        async with anyio.create_task_group() as group:
            if self._worker is not None:
                group.start_soon(self._worker.shutdown)
            while self._claims:
                await self._claims.wait_removed()

    async def _run_worker(self, client: Client) -> None:
        """Poll for activities until a drain has ended. A cancellation stops it at once."""
        self._worker = worker = Worker(
            client,
            task_queue=self._queue,
            workflows=[SessionWorkflow],
            activities=[self._run_session],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=MAX_CLAIMS,
            max_heartbeat_throttle_interval=timedelta(seconds=self._beat_seconds),
            sticky_queue_schedule_to_start_timeout=_STICKY_TIME,
            graceful_shutdown_timeout=_MAX_DRAIN_TIME,
        )
        scope = anyio.CancelScope(shield=True)
        failures = list[Exception]()

        async def run() -> None:
            with scope:
                try:
                    await worker.run()
                except Exception as error:  # of the SDK, which has no class for it
                    failures.append(error)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            try:
                await anyio.sleep_forever()
            finally:
                for claim in self._claims.all:  # no session worker runs here any more
                    await claim.end(unfinished=True)
                with anyio.move_on_after(_STOP_SECONDS, shield=True):
                    await worker.shutdown()
                scope.cancel()
        if failures:
            raise Disconnected(f"{self.place} failed: {first(failures[0])}")

    @activity.defn(name=ACTIVITY_NAME)
    async def _run_session(self, session: str) -> list[str]:
        """Run a session on this worker. Return the ids of the wakes that it took."""
        for earlier in self._claims.of_session(session):
            earlier.cancel()  # it had no heartbeat for a while; its turn may end
        await self._beat_while_claimed(session)
        if self._is_draining:
            raise ApplicationError("this worker takes no further sessions")
        number = (
            activity.info().current_attempt_scheduled_time - _EPOCH_START
        ) // _ONE_MICROSECOND
        if not await self._slots.take(number):
            self.on_full()
            raise ApplicationError(
                "the tenant has as many sessions at work as it may have",
                next_retry_delay=_FULL_TIME,
            )
        claim = WorkerClaim(
            session, number, acknowledge=self._acknowledge, release=self._release
        )
        wakes = self._wakes[number] = _Wakes()
        self._claims.add(claim)
        await self._beat_while_claimed(session)
        if claim.unfinished:  # the next attempt has the wakes, too
            raise ApplicationError("the session has more to do")
        return wakes.taken

    async def _beat_while_claimed(self, session: str) -> None:
        try:
            while self._claims.of_session(session):
                if time.monotonic() - self._reached < _UNREACHED_SECONDS:
                    activity.heartbeat()
                with anyio.move_on_after(self._beat_seconds):
                    await self._claims.wait_removed()
        except (
            anyio.get_cancelled_exc_class()
        ):  # Temporal gives the session to another worker
            for claim in self._claims.of_session(session):
                claim.cancel()
            raise

    async def _check_database(self) -> None:
        """Note when the database answers: a worker without it makes no progress."""
        while True:
            with suppress(JournalError):
                await self._database.run(lambda db: db.execute("select 1"))
                self._reached = time.monotonic()
            await anyio.sleep(self._beat_seconds)

    async def _wake_forgotten(self) -> None:
        """Wake the sessions of old orders: the one that placed them may be dead, and Temporal may have
        lost what it knew with its server.
        """
        limits = self._forgotten_seconds, _MAX_FORGOTTEN
        while True:
            await anyio.sleep(self._forgotten_seconds)
            with suppress(JournalError):
                rows = await self._database.run(
                    lambda db: db.fetch(_FORGOTTEN_SQL, *limits)
                )
                for row in rows:
                    if not self._claims.of_session(row["session"]):
                        await self.wake(row["session"])

    async def _acknowledge(self, claim: WorkerClaim) -> None:
        if (wakes := self._wakes.get(claim.number)) is not None:
            wakes.taken += wakes.received
            wakes.received.clear()
            if len(wakes.taken) > _MAX_WAKES:
                claim.cancel()  # what it leaves is for the next one

    async def _release(self, claim: WorkerClaim) -> None:
        self._wakes.pop(claim.number, None)
        self._claims.remove(claim)
        with suppress(JournalError):  # the lock ends with the connection
            await self._slots.release(claim.number)

    def _on_notification(self, notification: Notification) -> None:
        match notification:
            case Notification("wake", payload):
                session, _, id_ = payload.partition(" ")
                for claim in self._claims.of_session(session):
                    if id_:
                        self._wakes[claim.number].received.append(id_)
                    claim.wake()
            case Notification("stop", payload):
                self._claims.stop(payload)
            case _:  # a connection is there again: some may have been lost
                self._claims.wake_all()

    async def _is_claimed(self, session: str) -> bool:
        """Return whether a worker runs the activity. A dead worker counts until its
        heartbeat is missed.
        """
        with self._as_errors():
            client = await self._connect()
            handle = client.get_workflow_handle(self._workflow_id(session))
            try:
                workflow = await handle.describe(rpc_timeout=_CALL_TIME)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return False
                raise
        waits = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        activities = workflow.raw_description.pending_activities
        return any(pending.state != waits for pending in activities)

    def _workflow_id(self, session: str) -> str:
        return f"{self._database.tenant}/{session}"

    async def _connect(self) -> Client:
        if self._client is None:
            self._client = await Client.connect(**self._options)
        return self._client

    @contextmanager
    def _as_errors(self) -> Generator[None]:
        """Raise errors of Temporal as `Disconnected`."""
        try:
            yield
        except (
            RPCError,
            RuntimeError,
        ) as error:  # the second is that of a first connection
            raise Disconnected(f"{self.place} cannot be reached: {first(error)}") from error


def _ignore() -> None:
    pass


class _Wakes(Struct):
    """The ids of wakes: those that came since a claim last took its orders, and those
    before.
    """

    received: list[str] = field(default_factory=list[str])
    taken: list[str] = field(default_factory=list[str])


def _connection_options(address: str) -> dict[str, Any]:
    """Return the options of `Client.connect`. Raises `BadInput` if the settings of Temporal
    cannot be read.
    """
    try:
        options: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, ValueError, OSError) as error:
        raise BadInput(
            f"the settings of Temporal cannot be read: {first(error)}"
        ) from error
    retries = RetryConfig(max_elapsed_time_millis=_MAX_RETRY_MILLIS)
    quiet = LoggingConfig(TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    runtime = Runtime(telemetry=TelemetryConfig(logging=quiet))  # it writes to stdout
    logging.getLogger("temporalio").setLevel(logging.ERROR)  # lost activities are expected
    return {
        "retry_config": retries, "runtime": runtime, **options, "target_host": address,
    }  # fmt: skip
