"""A `Runner` whose queue is Temporal: each session with work has a workflow with one activity.

A wake is a signal, which starts the workflow if there is none (`session_workflow`).
Temporal gives the activity to a worker, and to another one if heartbeats are missing. The
number of a claim is the time at which Temporal scheduled this attempt. The database also
notifies the worker that has the session of a wake, which is faster. Each wake has an id, so
that the workflow knows which of them the worker took.

Needs `refold[cluster]`. How to connect (TLS, API key, namespace) is read as Temporal's own
tools read it: from `TEMPORAL_…` variables and its configuration file.
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
from temporalio.common import Priority
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
from refold.cluster.forgotten_sessions import FORGOTTEN_SECONDS, ForgottenSessions
from refold.cluster.outage import Outage
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
# After it a session whose tenant may not run more of them is tried again.
_FULL_TIME = timedelta(seconds=2)
_MAX_DRAIN_TIME = timedelta(days=1)  # the caller of `drain` has a limit of its own
_STOP_SECONDS = 5.0  # in which the connection to Temporal must end
# For so long Temporal asks a worker that was killed, before another one continues its workflows.
_STICKY_TIME = timedelta(seconds=1)
_TASK_TIME = timedelta(seconds=3)
_WAKE_SQL = """
select refold.newest_person($3) from (select pg_notify(refold.channel($1), $2)) notified
"""
_EPOCH_START, _ONE_MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class TemporalRunner:
    """Wakes sessions, and, while `run` runs, holds the claims of this worker.

    `report` is called with a sentence when Temporal is lost and when it is back. `on_full`
    is called while sessions wait because the tenant may not run more of them.
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
        self.place = f"Temporal at {address}"
        self._outage = Outage(self.place, report)
        self._queue = f"refold-{database.tenant}"
        self._beat_seconds, self._dead_seconds = beat_seconds, dead_seconds
        self.max_claims = MAX_CLAIMS  # at once
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._claims = WorkerClaims()
        self._wakes = dict[int, _Wakes]()  # by the number of the claim
        self._forgotten = ForgottenSessions(
            database, self.wake, self._has_claim, forgotten_seconds
        )
        self._slots = RunningSlots(database)
        self.on_full = _ignore
        self._is_draining = False
        self._reached = time.monotonic()  # when the database answered last

    async def wake(self, session: str) -> None:
        """Wake the claim on the session, and signal its workflow, or start one."""
        id_ = os.urandom(6).hex()
        values = WAKE_CHANNEL, f"{session} {id_}", session
        person = await self._database.run(lambda db: db.fetchval(_WAKE_SQL, *values))
        with self._as_errors():
            client = await self._connect()
            await client.start_workflow(
                WORKFLOW_NAME,
                args=[session, self._dead_seconds, []],
                id=self._workflow_id(session),
                task_queue=self._queue,
                task_timeout=_TASK_TIME,
                priority=Priority(fairness_key=person),  # people take turns
                start_signal=WAKE_SIGNAL,
                start_signal_args=[id_],
                rpc_timeout=_CALL_TIME,
            )
            self._outage.end()

    async def stop(self, session: str, reason: str = "") -> None:
        await stop_claim(
            self._database, Stop(session, reason), partial(self._is_claimed, session)
        )

    def claims(self) -> AsyncGenerator[WorkerClaim]:
        return self._claims.take_new()

    async def run(self) -> None:
        """Take sessions from Temporal until this is cancelled, and wait for it during
        outages.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(follow_notifications, self._database, self._on_notification)
            group.start_soon(self._check_database)
            group.start_soon(self._check_temporal)
            group.start_soon(self._forgotten.run)
            while not self._is_draining:
                try:
                    with self._as_errors():
                        await self._run_worker(await self._connect())
                except Disconnected:  # `_as_errors` has reported it
                    await anyio.sleep(_RETRY_SECONDS)

    async def drain(self) -> None:
        """Cancel the claims of this worker, and take no further ones; wait until the claims
        have ended.
        """
        self._is_draining = True
        self._claims.cancel_all()
        async with anyio.create_task_group() as group:
            if self._worker is not None:
                group.start_soon(self._worker.shutdown)
            while self._claims:
                await self._claims.wait_removed()

    async def _run_worker(self, client: Client) -> None:
        """Poll for activities until `drain` has ended. A cancellation stops this at once."""
        self._worker = worker = Worker(
            client,
            task_queue=self._queue,
            workflows=[SessionWorkflow],
            activities=[self._run_session],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=self.max_claims,
            max_heartbeat_throttle_interval=timedelta(seconds=self._beat_seconds),
            sticky_queue_schedule_to_start_timeout=_STICKY_TIME,
            graceful_shutdown_timeout=_MAX_DRAIN_TIME,
        )
        scope = anyio.CancelScope(shield=True)
        failures = list[Exception]()

        async def run() -> None:
            """Run the SDK's worker to its end; an error of it is added to `failures`."""
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
            message = f"{self.place} failed: {first(failures[0])}"
            self._outage.begin(message)
            raise Disconnected(message)

    @activity.defn(name=ACTIVITY_NAME)
    async def _run_session(self, session: str) -> list[str]:
        """Run a session on this worker. Return the ids of the wakes that it took."""
        for earlier in self._claims.of_session(session):
            earlier.cancel()  # Temporal missed its heartbeat, and has started another attempt
        await self._beat_while_claimed(session)  # until the earlier claims have ended
        if self._is_draining:
            raise ApplicationError("this worker takes no further sessions")
        # The number of a claim must be higher for each later attempt, so it is a time.
        scheduled = activity.info().current_attempt_scheduled_time
        number = (scheduled - _EPOCH_START) // _ONE_MICROSECOND
        if not await self._slots.take(number):
            self.on_full()
            raise ApplicationError(
                "the tenant has as many sessions at work as it may have",
                next_retry_delay=_FULL_TIME,
            )
        claim = WorkerClaim(
            session, number, acknowledge=self._acknowledge, release=self._release
        )
        wakes = _Wakes()
        self._wakes[number] = wakes
        self._claims.add(claim)  # a session worker takes it from there
        await self._beat_while_claimed(session)
        if claim.unfinished:  # the next attempt has the wakes, too
            raise ApplicationError("the session has more to do")
        return wakes.taken

    async def _beat_while_claimed(self, session: str) -> None:
        """Send Temporal heartbeats until this worker has no claim on the session.

        While the database cannot be reached, none are sent, so another worker gets the
        session.
        """
        try:
            while self._claims.of_session(session):
                if time.monotonic() - self._reached < _UNREACHED_SECONDS:
                    activity.heartbeat()
                with anyio.move_on_after(self._beat_seconds):
                    await self._claims.wait_removed()
        # Temporal gives the session to another worker.
        except anyio.get_cancelled_exc_class():
            for claim in self._claims.of_session(session):
                claim.cancel()
            raise

    async def _check_database(self) -> None:
        """Note the time whenever the database answers. Without the database no heartbeats
        are sent.
        """
        while True:
            with suppress(JournalError):
                await self._database.run(lambda db: db.execute("select 1"))
                self._reached = time.monotonic()
            await anyio.sleep(self._beat_seconds)

    async def _check_temporal(self) -> None:
        """Note whether Temporal answers, because its client reports nothing while it waits."""
        while True:
            with suppress(Disconnected), self._as_errors():
                client = await self._connect()
                await client.service_client.check_health(timeout=_CALL_TIME)
                self._outage.end()
            await anyio.sleep(self._beat_seconds)

    async def _acknowledge(self, claim: WorkerClaim) -> None:
        """Note that the claim has taken the wakes that it received."""
        wakes = self._wakes.get(claim.number)
        if wakes is None:  # the claim was released
            return
        wakes.taken += wakes.received
        wakes.received.clear()
        if len(wakes.taken) > _MAX_WAKES:
            claim.cancel()  # the next claim does what is left

    async def _release(self, claim: WorkerClaim) -> None:
        self._wakes.pop(claim.number, None)
        self._claims.remove(claim)
        with suppress(JournalError):  # the lock ends with the connection
            await self._slots.release(claim.number)

    def _on_notification(self, notification: Notification) -> None:
        """Pass a wake or a stop to the claims of its session."""
        match notification:
            case Notification("wake", payload):
                session, _, id_ = payload.partition(" ")
                for claim in self._claims.of_session(session):
                    if id_:
                        self._wakes[claim.number].received.append(id_)
                    claim.wake()
            case Notification("stop", payload):
                self._claims.stop(payload)
            case _:  # the connection was restored, and notifications may have been lost
                self._claims.wake_all()

    def _has_claim(self, session: str) -> bool:
        return bool(self._claims.of_session(session))

    async def _is_claimed(self, session: str) -> bool:
        """Return whether a worker runs the activity of the session.

        A dead worker counts until Temporal misses its heartbeat.
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
        """Raise errors of Temporal as `Disconnected`, and note them."""
        try:
            yield
        # A first connection that fails raises a RuntimeError.
        except (RPCError, RuntimeError) as error:
            message = f"{self.place} cannot be reached: {first(error)}"
            self._outage.begin(message)
            raise Disconnected(message) from error


def _ignore() -> None:
    pass


class _Wakes(Struct):
    """The ids of the wakes that reached a claim.

    `received` are the wakes since the claim last took orders, `taken` the wakes before.
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
    defaults: dict[str, Any] = {"retry_config": retries, "runtime": runtime}
    return defaults | options | {"target_host": address}
