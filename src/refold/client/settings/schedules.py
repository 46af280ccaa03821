"""Adds schedules with the rights of a folder, lists them and stops them.

`schedule_book` stores them; the server starts due runs. `refold schedule` and the pages use
this module.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.session_schedules import open_book, recurrence_of, rights_of
from refold.client import webhooks
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import Paths
from refold.errors import BadInput
from refold.journal.schedules.recurrence import format_moment, local_zone, never_recurring
from refold.journal.schedules.schedule_book import NewSchedule, Schedule, ScheduleBook
from refold.values.modes import MODE_NAMES


class ScheduleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule as a person requests it. `at` is a time, `every` a recurrence.

    With neither, it runs only when its webhook is called.
    """

    prompt: str
    at: str = ""
    every: str = ""
    zone: str = ""
    model: str = ""
    agent: str = ""
    mode: str = ""
    allow: Sequence[str] = ()
    dollars: float | None = None  # limit of each run
    tokens: int | None = None


class ScheduleRow(Struct, frozen=True):
    """A schedule and its present state.

    Times are formatted in the schedule's time zone; "" means that there is no such time.
    """

    id: int
    prompt: str
    directory: str
    when: str
    next: str
    mode: str
    allow: Sequence[str]
    last: str  # the time of its last run
    outcome: str  # outcome of the last run; "" while it runs
    session: str  # conversation of the last run
    stopped: bool


def new_schedule(
    request: ScheduleRequest, directory: Path, paths: Paths, environ: Mapping[str, str]
) -> tuple[NewSchedule, str]:
    """Return a schedule whose rights are the settings of `directory`, and a notice for the
    user.

    The notice is "" if there is none. Raises `BadInput` for invalid times, rules and
    agents.
    """
    if request.mode and request.mode not in MODE_NAMES:
        raise BadInput(f"{request.mode!r} is not a mode: {', '.join(MODE_NAMES)}")
    flags: dict[str, object] = {
        "permissions.allow": tuple(request.allow),
        "permission_mode": MODE_NAMES.get(request.mode),
        "budget.dollars": request.dollars,
        "budget.tokens": request.tokens,
    }
    values = {key: value for key, value in flags.items() if value is not None}
    loaded = load_folder_settings(directory, paths, environ, values)
    options = LaunchOptions(directory=directory, model=request.model, attended=False)
    # Raises for invalid rules and unknown agents.
    App(loaded.settings, paths, environ, options)
    if request.at or request.every:
        recurrence = recurrence_of(
            request.at, request.every, time.time(), environ, request.zone
        )
    else:  # it runs only when its webhook is called
        zone = request.zone or local_zone(environ.get("TZ", ""))
        recurrence = never_recurring(zone)
    rights = rights_of(loaded.settings, options)
    plan = NewSchedule(
        request.prompt, str(directory), recurrence, rights, request.agent, request.model
    )
    return plan, loaded.reason_ignored


def stop_schedule(paths: Paths, book: ScheduleBook, id_: int) -> Schedule:
    """Stop a schedule, and delete the secret of its webhook. Raises `BadInput` if there is
    none.
    """
    stopped = book.stop(id_)
    webhooks.forget(paths, stopped.webhook)
    return stopped


def list_schedules(app: App) -> list[ScheduleRow]:
    """Return the schedules that will run again, or that run now."""
    book = open_book(app.paths, app.environ)
    book.settle()
    return [
        _row(item) for item in book.list_schedules() if not item.is_over or item.running
    ]


def add_schedule(app: App, request: ScheduleRequest) -> ScheduleRow:
    """Add a schedule with the rights of the app's folder.

    Raises `BadInput` if `request` has neither a time nor a recurrence, and as `new_schedule`
    does.
    """
    if not (request.at or request.every):
        raise BadInput("a schedule needs a time, or how often it runs: give one of them")
    directory = Path(app.directory)
    plan, _ = new_schedule(request, directory, app.paths, app.environ)
    return _row(open_book(app.paths, app.environ).add(plan, time.time()))


def _row(schedule: Schedule) -> ScheduleRow:
    """Return a schedule with its next and its last run, as a list shows it."""
    plan = schedule.plan
    recurrence = plan.recurrence
    word = "at" if recurrence.once else "every"
    last = schedule.runs[-1] if schedule.runs else None
    due = schedule.next
    return ScheduleRow(
        id=schedule.id,
        prompt=plan.prompt,
        directory=plan.workspace,
        when=f"{word} {recurrence.text}" if recurrence.text else "",
        next="" if due is None else format_moment(due, recurrence.zone),
        mode=plan.rights.mode,
        allow=plan.rights.allow,
        last=format_moment(last.started, recurrence.zone) if last else "",
        outcome=last.outcome if last else "",
        session=last.session if last else "",
        stopped=schedule.stopped,
    )
