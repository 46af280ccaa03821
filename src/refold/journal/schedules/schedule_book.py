"""The schedules and their runs: one file for all workspaces, or rows of a database for all workers.

    <data>/schedules/schedules.jsonl
    <data>/schedules/running-3.lock    while a run of schedule 3 is under way

A run is claimed under the lock of the file and recorded before it starts, so that only one
process starts it; its end is recorded afterwards. While it runs, its process holds the
second lock, which the system releases when the process dies. So a run without that lock and
without a recorded end was interrupted, and it is not started again. A call of a webhook
waits in the file until its run is claimed. In a database (`cluster.schedule_log`) a claimed
run is an order to a session, which another worker continues, so there is no second lock.

`schedules.recurrence` computes times, `webhook_calls` checks calls, `store.shared_log` has the
file, and `cli.scheduled_run` does the work. Every method blocks on the disk.
"""

import fcntl
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput
from refold.journal.schedules.recurrence import Recurrence
from refold.journal.schedules.webhook_calls import (
    MAX_BODY_CHARS,
    CallMemory,
    CallRefusal,
    HookCalled,
    WaitingCall,
    WebhookSet,
)
from refold.journal.store.disk import Disk, make_directories
from refold.journal.store.shared_log import EventLog, EventSchema, SharedLog
from refold.safe_open import open_checked
from refold.values.modes import Mode
from refold.values.usage import Budget

DIRECTORY_NAME, FILE_NAME = "schedules", "schedules.jsonl"
CUT_OFF = "cut off"
SandboxProfile: TypeAlias = Literal["read-only", "workspace", "off"]  # strictest first
_UNNAMED = ""  # the author of each event, which is not recorded
_MAX_SCHEDULES = 200  # schedules that will run again
_MAX_PROMPT_CHARS = 20_000
_MAX_RUNS = 20  # remembered of each schedule
_LATE_SECONDS = 600.0  # delay after which a time counts as missed; its run is still made
_SET_BACK_SECONDS = 86_400.0  # records further in the future were made under a wrong clock


class SavedRights(Struct, frozen=True):
    """The rights of a schedule's runs, fixed when a person added or approved it."""

    mode: Mode = "default"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    budget: Budget = Budget()  # of each run
    steps: int = 50  # model responses in each run
    sandbox: SandboxProfile = "workspace"
    network: bool = False
    writable: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None  # only these; None: all
    user_namespaces: bool = False


class NewSchedule(Struct, frozen=True):
    """A schedule before it gets a number.

    `session` is the session that requested it; "" if none did.
    """

    prompt: str
    workspace: str
    recurrence: Recurrence
    rights: SavedRights = SavedRights()
    agent: str = ""
    model: str = ""
    session: str = ""


class ScheduledRun(Struct, frozen=True):
    """The run for the time `due`; `missed` counts earlier times without a run.

    `call` is the number of the webhook call that caused the run, or 0. `body` is the body of
    that call, which is stored until the run ends.
    """

    due: float
    started: float
    missed: int = 0
    session: str = ""
    outcome: str = ""  # "": it is running
    text: str = ""
    call: int = 0
    body: str = ""


class Schedule(Struct, frozen=True):
    """A schedule with its runs. No time up to `handled` is due any more."""

    id: int
    plan: NewSchedule
    handled: float
    stopped: bool = False
    runs: tuple[ScheduledRun, ...] = ()  # the latest, oldest first
    webhook: str = ""  # its name, or ""
    called: int = 0  # number of calls
    waiting: tuple[WaitingCall, ...] = ()  # calls that have no run yet, oldest first

    @property
    def running(self) -> ScheduledRun | None:
        last = self.runs[-1] if self.runs else None
        return last if last is not None and not last.outcome else None

    @property
    def next(self) -> float | None:
        """The next time that is due; None if the schedule is stopped or no time follows."""
        return None if self.stopped else self.plan.recurrence.next(self.handled)

    @property
    def is_over(self) -> bool:
        """Whether the schedule never runs again."""
        may_run = self.next is not None or self.webhook or self.waiting
        return self.stopped or not may_run

    def may_be_due(self, now: float) -> bool:
        """Whether there may be a run to claim."""
        if self.waiting and not self.stopped:
            return True
        due = self.next
        was_clock_ahead = self.handled - now > _SET_BACK_SECONDS  # a claim corrects this
        return due is not None and (due <= now or was_clock_ahead)


class ScheduleAdded(Struct, frozen=True):
    """A schedule was added.

    `key` names the call that added it: repeating the call adds nothing.
    """

    id: int
    plan: NewSchedule
    now: float
    key: str = ""


class ScheduleStopped(Struct, frozen=True):
    id: int


class RunClaimed(Struct, frozen=True):
    """A run is about to start. `call` is the number of the webhook call that it is for, or 0."""

    id: int
    due: float
    now: float
    missed: int = 0
    call: int = 0


class RunOpened(Struct, frozen=True):
    """The session of the current run was opened."""

    id: int
    session: str


class RunEnded(Struct, frozen=True):
    id: int
    outcome: str
    text: str = ""


class ClockSetBack(Struct, frozen=True):
    """The recorded time was more than a day in the future. Times count from `now` again."""

    id: int
    now: float


ScheduleEvent: TypeAlias = (
    ScheduleAdded | ScheduleStopped | RunClaimed | RunOpened | RunEnded | ClockSetBack
    | WebhookSet | HookCalled
)  # fmt: skip
_EVENT_KINDS: tuple[type[ScheduleEvent], ...] = (
    ScheduleAdded, ScheduleStopped, RunClaimed, RunOpened, RunEnded, ClockSetBack,
    WebhookSet, HookCalled,
)  # fmt: skip


class StoredSchedules(Struct, frozen=True):
    """The state that the events fold to: the schedules by number.

    `calls` maps the key of a tool call that added a schedule to the number of that schedule.
    `hooks` maps the number of a schedule to the recent calls of its webhook.
    """

    by_id: Mapping[int, Schedule] = {}
    calls: Mapping[str, int] = {}
    hooks: Mapping[int, CallMemory] = {}


class ScheduleBook:
    """All schedules of a user. `data` is the data directory; `mask` replaces secrets. If `log`
    is given, it has the schedules instead of a file, and all workers of a tenant share it.
    """

    def __init__(
        self,
        data: Path,
        mask: Callable[[ScheduleEvent], ScheduleEvent] = lambda event: event,
        disk: Disk | None = None,
        log: EventLog[StoredSchedules, ScheduleEvent] | None = None,
    ) -> None:
        self._directory, self._disk = data / DIRECTORY_NAME, disk or Disk()
        self.is_shared = log is not None
        self._log = log or SharedLog(
            self._directory / FILE_NAME, schedule_schema(), mask, self._disk
        )

    def list_schedules(self) -> tuple[Schedule, ...]:
        return tuple(self._log.read().by_id.values())

    def stamp(self) -> object:
        """Return a value that changes with the schedules, computed fast; None without any."""
        return self._log.stamp()

    def find(self, id_: int) -> Schedule:
        """Return the schedule with this number. Raises `BadInput`."""
        return _find(self._log.read(), id_)

    def add(self, plan: NewSchedule, now: float, key: str = "") -> Schedule:
        """Add a schedule. Raises `BadInput`."""
        if not plan.prompt.strip():
            raise BadInput("the prompt is empty: say what the agent should do")
        if len(plan.prompt) > _MAX_PROMPT_CHARS:
            raise BadInput(
                f"the prompt has {len(plan.prompt):,} characters: {_MAX_PROMPT_CHARS:,} at most"
            )

        def decide(stored: StoredSchedules) -> ScheduleAdded | None:
            if key and key in stored.calls:
                return None  # this call has added one already
            active_count = sum(not schedule.is_over for schedule in stored.by_id.values())
            if active_count >= _MAX_SCHEDULES:
                raise BadInput(f"there are {_MAX_SCHEDULES} schedules: stop some first")
            return ScheduleAdded(max(stored.by_id, default=0) + 1, plan, now, key)

        event, stored = self._log.change(_UNNAMED, decide)
        id_ = event.id if event is not None else stored.calls[key]
        return stored.by_id[id_]

    def stop(self, id_: int) -> Schedule:
        """Stop a schedule, but not its current run. Raises `BadInput`."""

        def decide(stored: StoredSchedules) -> ScheduleStopped | None:
            return None if _find(stored, id_).stopped else ScheduleStopped(id_)

        _, stored = self._log.change(_UNNAMED, decide)
        return _find(stored, id_)

    def set_webhook(self, id_: int, name: str) -> Schedule:
        """Set the name of the schedule's webhook; "" removes it. Raises `BadInput`."""

        def decide(stored: StoredSchedules) -> WebhookSet:
            if _find(stored, id_).stopped:
                raise BadInput(f"schedule {id_} is stopped: add another one")
            other = _find_webhook(stored, name)
            if other is not None and other.id != id_:
                raise BadInput(
                    f"the webhook {name!r} is that of schedule {other.id}: choose another name"
                )
            return WebhookSet(id_, name)

        _, stored = self._log.change(_UNNAMED, decide)
        return _find(stored, id_)

    def find_by_webhook(self, webhook: str) -> Schedule | None:
        """Return the schedule with this webhook, unless it is stopped; None if there is none."""
        return _find_webhook(self._log.read(), webhook)

    def call(self, webhook: str, call: HookCalled) -> HookCalled | CallRefusal | None:
        """Record a call whose signature is valid, and return it with its number.

        Returns the reason if the call is refused; None if the webhook no longer exists.
        """
        refusal: CallRefusal | None = None

        def decide(stored: StoredSchedules) -> HookCalled | None:
            nonlocal refusal
            schedule = stored.by_id.get(call.id)
            if schedule is None or schedule.stopped or schedule.webhook != webhook:
                return None
            memory = stored.hooks.get(call.id, CallMemory())
            refusal = memory.refusal(call, schedule.waiting)
            if refusal:
                return None
            body = call.body[:MAX_BODY_CHARS]
            return replace(call, number=schedule.called + 1, body=body)

        event, _ = self._log.change(_UNNAMED, decide)
        return event if isinstance(event, HookCalled) else refusal

    @contextmanager
    def claim_run(self, id_: int, now: float) -> Generator[ScheduledRun | None]:
        """Yield the run that is due, claimed for this process; None if no run is due.

        If the block has not called `end_run`, the run is recorded as interrupted.
        """
        with self._lock_runs(id_) as has_lock:
            if not has_lock:  # another process has a run
                yield None
                return
            self._settle(id_)
            try:
                yield self.claim(id_, now)
            finally:
                self._settle(id_)

    def claim(self, id_: int, now: float) -> ScheduledRun | None:
        """Record that the run that is due begins, and return it.
        Return None if no run is due, or if another run of the schedule has not ended.
        """
        self._log.change(_UNNAMED, lambda stored: _clock_correction(stored, id_, now))
        event, stored = self._log.change(_UNNAMED, lambda stored: _claim(stored, id_, now))
        return stored.by_id[id_].running if event is not None else None

    def record_session(self, id_: int, session: str) -> None:
        self._log.change(_UNNAMED, lambda _: RunOpened(id_, session))

    def end(self, id_: int, outcome: str, text: str = "") -> None:
        self._log.change(_UNNAMED, lambda _: RunEnded(id_, outcome, text))

    def open_run(self, id_: int, session: str) -> ScheduledRun | None:
        """Record the session of the claimed run, if the run has none yet. Return the run."""

        def decide(stored: StoredSchedules) -> RunOpened | None:
            run = _find(stored, id_).running
            return RunOpened(id_, session) if run is not None and not run.session else None

        _, stored = self._log.change(_UNNAMED, decide)
        return stored.by_id[id_].running

    def end_run(self, id_: int, session: str, outcome: str, text: str = "") -> None:
        """Record the end of the run in this session, unless it is recorded already."""

        def decide(stored: StoredSchedules) -> RunEnded | None:
            run = _find(stored, id_).running
            is_this_run = run is not None and run.session == session
            return RunEnded(id_, outcome, text) if is_this_run else None

        self._log.change(_UNNAMED, decide)

    def settle(self) -> tuple[Schedule, ...]:
        """Record runs whose process has died as interrupted, and return their schedules.
        Runs in a database are left alone, because workers continue the runs of other workers.
        """
        if self.is_shared:
            return ()
        schedules = list[Schedule]()
        for schedule in self.list_schedules():
            if schedule.running is not None:
                with self._lock_runs(schedule.id) as has_lock:
                    if has_lock and self._settle(schedule.id):
                        schedules.append(self.find(schedule.id))
        return tuple(schedules)

    def _settle(self, id_: int) -> bool:
        """Record the current run as interrupted. Return False if there is none."""

        def decide(stored: StoredSchedules) -> RunEnded | None:
            running = _find(stored, id_).running
            return RunEnded(id_, CUT_OFF) if running is not None else None

        event, _ = self._log.change(_UNNAMED, decide)
        return event is not None

    @contextmanager
    def _lock_runs(self, id_: int) -> Generator[bool]:
        """Lock the runs of this schedule. Yields False if another process has the lock."""
        make_directories(self._directory, self._disk)
        path = self._directory / f"running-{id_}.lock"
        file = open_checked(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            yield False
            return
        try:
            yield True
        finally:
            os.close(file)


def schedule_schema() -> EventSchema[StoredSchedules, ScheduleEvent]:
    return EventSchema("list", _EVENT_KINDS, StoredSchedules(), _fold_events)


def _find(stored: StoredSchedules, id_: int) -> Schedule:
    if (schedule := stored.by_id.get(id_)) is None:
        known = f"there are 1 to {max(stored.by_id)}" if stored.by_id else "there are none"
        raise BadInput(f"there is no schedule {id_}: {known}")
    return schedule


def _find_webhook(stored: StoredSchedules, webhook: str) -> Schedule | None:
    for schedule in stored.by_id.values():
        if webhook and schedule.webhook == webhook and not schedule.stopped:
            return schedule
    return None


def _clock_correction(stored: StoredSchedules, id_: int, now: float) -> ClockSetBack | None:
    schedule = _find(stored, id_)
    ahead = schedule.handled - now
    return ClockSetBack(id_, now) if ahead > _SET_BACK_SECONDS else None


def _claim(stored: StoredSchedules, id_: int, now: float) -> RunClaimed | None:
    """Return the claim of the run that is due, or None if none is.

    One run covers all times that are due. If no time is due, the run is for the oldest waiting
    call of the webhook.
    """
    schedule = _find(stored, id_)
    if schedule.stopped or schedule.running is not None:
        return None
    due_count, last = schedule.plan.recurrence.count_due(schedule.handled, now)
    if due_count:
        # The last time counts as missed, too, if its run is late.
        is_late = now - last > _LATE_SECONDS
        missed = due_count if is_late else due_count - 1
        return RunClaimed(id_, last, now, missed=missed)
    if schedule.waiting:
        call = schedule.waiting[0]
        return RunClaimed(id_, call.now, now, call=call.number)
    return None


def _fold_events(
    stored: StoredSchedules, events: Iterable[ScheduleEvent]
) -> StoredSchedules:
    """Return the state after the events. An event of a schedule that is missing is ignored."""
    by_id, calls, hooks = dict(stored.by_id), dict(stored.calls), dict(stored.hooks)
    for event in events:
        schedule = by_id.get(event.id)
        if isinstance(event, ScheduleAdded):
            by_id[event.id] = Schedule(event.id, event.plan, handled=event.now)
            if event.key:
                calls[event.key] = event.id
        elif schedule is not None:
            by_id[event.id] = _apply(schedule, event)
            if isinstance(event, HookCalled):
                memory = hooks.get(event.id, CallMemory())
                hooks[event.id] = memory.with_call(event)
            elif isinstance(event, WebhookSet) and event.name != schedule.webhook:
                hooks.pop(event.id, None)  # the new webhook has another secret
    return StoredSchedules(by_id, calls, hooks)


def _apply(schedule: Schedule, event: ScheduleEvent) -> Schedule:
    """Return the schedule after an event. `RunOpened` and `RunEnded` change the running run."""
    earlier_runs, running = schedule.runs[:-1], schedule.running
    match event:
        case ScheduleStopped():
            return replace(schedule, stopped=True)
        case ClockSetBack(_, now):
            return replace(schedule, handled=now)
        case WebhookSet(_, name):
            return replace(schedule, webhook=name)
        case HookCalled(number=number, now=now, body=body):
            waiting = (*schedule.waiting, WaitingCall(number, now, body))
            return replace(schedule, called=number, waiting=waiting)
        case RunClaimed():
            return _with_run(schedule, event)
        case RunOpened(_, session) if running is not None:
            opened = replace(running, session=session)
            return replace(schedule, runs=(*earlier_runs, opened))
        case RunEnded(_, outcome, text) if running is not None:
            ended = replace(running, outcome=outcome, text=text, body="")
            return replace(schedule, runs=(*earlier_runs, ended))
        case _:
            return schedule


def _with_run(schedule: Schedule, claim: RunClaimed) -> Schedule:
    """Return the schedule with a new run, and without the waiting call that the run is for."""
    bodies = {call.number: call.body for call in schedule.waiting}
    body = bodies.get(claim.call, "")
    run = ScheduledRun(claim.due, claim.now, claim.missed, call=claim.call, body=body)
    waiting = tuple(call for call in schedule.waiting if call.number != claim.call)
    # `due` of a call is when it was made, so such a run leaves the due times as they are.
    handled = schedule.handled if claim.call else max(schedule.handled, claim.due)
    newest_runs = (*schedule.runs, run)[-_MAX_RUNS:]
    return replace(schedule, handled=handled, runs=newest_runs, waiting=waiting)
