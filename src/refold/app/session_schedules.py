"""Saves the rights of a session for scheduled runs, and applies them when a run starts.

A run never has more rights than were saved. The settings of the folder at the time of the run
can restrict them further: the stricter of two limits applies. `schedules.schedule_book` stores
schedules, and `cli.scheduled_run` runs them.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from anyio import to_thread
from msgspec.structs import replace

from refold.app.launch_options import LaunchOptions
from refold.app.policies import budget
from refold.config.folder_settings import load_folder_settings, to_flags
from refold.config.paths import Paths
from refold.config.secret_values import masks_of
from refold.config.settings import RuleWithCases, Settings
from refold.errors import BadInput, JournalError, ToolFailed
from refold.journal.schedules import recurrence
from refold.journal.schedules.recurrence import Recurrence
from refold.journal.schedules.schedule_book import (
    NewSchedule,
    SandboxProfile,
    SavedRights,
    Schedule,
    ScheduleBook,
    ScheduledRun,
    ScheduleEvent,
    schedule_schema,
)
from refold.journal.schedules.webhook_calls import MAX_BODY_CHARS
from refold.journal.state.fold import View
from refold.session.recorder import Recorder
from refold.values.text import mark_as_outside, mark_invisible
from refold.values.usage import DEFAULT_TOKENS

_WIDER_MODES = ("accept-edits", "sandbox", "bypass")
_PROFILES_BY_STRICTNESS: tuple[SandboxProfile, ...] = ("read-only", "workspace", "off")
# A run does not add schedules: the person approved only this one.
_DENIED_TOOLS = ("schedule",)
_NOT_HERE = "this run ends with your answer and does not start it"
_NO_BYPASS = (
    "a schedule cannot have the mode bypass, since no user would see what it does: choose "
    "another mode, and allow with --allow what it needs"
)


class SessionSchedules:
    """Implements the port of the tool `schedule` for the session of `record`."""

    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        settings: Settings,
        options: LaunchOptions,
        record: Recorder,
    ) -> None:
        self._paths, self._environ = paths, environ
        self._settings, self._options, self._record = settings, options, record

    async def add(self, call: str, prompt: str, when: str, every: str) -> str:
        """Schedule a prompt, and return a sentence for the model. Raises `ToolFailed`.

        `when` is the time of a single run; otherwise `every` says when runs are due.
        """
        try:
            return await to_thread.run_sync(self._add, call, prompt, when, every)
        except (BadInput, JournalError) as error:
            text = str(error)
            raise ToolFailed(f"{text[:1].upper()}{text[1:]}.") from error

    def _add(self, call: str, prompt: str, when: str, every: str) -> str:
        """Store the schedule. A repeated call with the id `call` does not store it twice."""
        view, now = self._record.view, time.time()
        plan = NewSchedule(
            prompt,
            workspace=str(self._options.directory),
            recurrence=recurrence_of(when, every, now, self._environ),
            rights=self._rights(view),
            agent=view.session.agent,
            model=view.session.model or self._options.model,
            session=view.session.id,
        )
        key = f"{view.session.id}:{call}"
        book = open_book(self._paths, self._environ)
        text = addition_text(book.add(plan, now, key), book)
        return text if self._options.attended else f"{text}; {_NOT_HERE}"

    def _rights(self, view: View) -> SavedRights:
        """Return the rights of a session to save, without those that only `--trust` granted."""
        settings, options, rights = self._settings, self._options, view.rights
        flags = to_flags(options.given)
        # The settings without the files that only --trust made valid.
        trusted = load_folder_settings(
            options.directory, self._paths, self._environ, flags
        ).settings
        trusted_rules = set(_rule_texts(trusted.permissions.allow))
        allow = [r for r in _rule_texts(settings.permissions.allow) if r in trusted_rules]
        mode = rights.mode or settings.permission_mode
        is_of_settings = mode == settings.permission_mode
        is_trusted = mode == trusted.permission_mode
        if is_of_settings and not is_trusted and mode in _WIDER_MODES:
            mode = "default"
        if mode == "bypass":
            mode = "default"
        # `rights_of` must not see the mode `bypass`, which it refuses.
        rights_without_mode = rights_of(
            replace(settings, permission_mode="default"), options
        )
        return replace(
            rights_without_mode,
            mode=mode,
            allow=tuple(
                r
                for r in dict.fromkeys((*allow, *rights.granted))
                if not _allows_scheduling(r)
            ),
            budget=rights.budget or budget(settings),
            steps=rights.steps or settings.limits.turn_steps(watched=False),
        )


def open_book(
    paths: Paths, environ: Mapping[str, str], secrets: Iterable[str] = ()
) -> ScheduleBook:
    """Return the schedules of this user.

    They are on this machine, or in the database that the variable REFOLD_SESSIONS names. In
    stored texts, `secrets`, stored keys and secret variables are masked.
    """
    masks = masks_of(environ, paths)
    masks.learn(*secrets)
    mask: Callable[[ScheduleEvent], ScheduleEvent] = masks.mask_event
    if not paths.sessions:
        return ScheduleBook(paths.data, mask)
    from refold.cluster.database import database  # an extra, which few use
    from refold.cluster.schedule_log import ScheduleLog

    owner = database(paths.sessions, paths.tenant)
    return ScheduleBook(paths.data, log=ScheduleLog(owner, schedule_schema(), mask))


def recurrence_of(
    when: str, every: str, now: float, environ: Mapping[str, str], zone: str = ""
) -> Recurrence:
    """Return the parsed time of a schedule: `when` for a single run, otherwise `every`.

    `now` is the present time, and `zone` the time zone; "" means the local time zone. Raises
    `BadInput` if the time or `zone` is invalid.
    """
    if zone:
        recurrence.zone_of(zone)
    zone = zone or recurrence.local_zone(environ.get("TZ", ""))
    if when:
        return recurrence.parse_single(when, now, zone)
    return recurrence.parse_repeated(every, now, zone)


def addition_text(schedule: Schedule, book: ScheduleBook) -> str:
    """Return a line for the user or model about a schedule that was added."""
    zone, due = schedule.plan.recurrence.zone, schedule.next
    when = recurrence.format_moment(due, zone) if due is not None else "never"
    who = (
        "a worker starts it then"
        if book.is_shared
        else "an open session or server starts it then, or the timer of `refold schedule install`"
    )
    return f"schedule {schedule.id} is due {when}; {who}"


def prompt_of_run(schedule: Schedule, run: ScheduledRun) -> str:
    """Return the prompt of a run: the user's text, and then the data that a webhook received.

    The data is marked as coming from outside.
    """
    prompt = schedule.plan.prompt
    if not run.body:
        return prompt
    source = f"a call of the webhook {schedule.webhook}"
    if len(run.body) >= MAX_BODY_CHARS:
        source += f", its first {MAX_BODY_CHARS:,} characters"
    visible_body = mark_invisible(run.body)[0]
    return f"{prompt}\n\n{mark_as_outside(visible_body, source)}"


def rights_of(settings: Settings, options: LaunchOptions) -> SavedRights:
    """Return the rights to save for a start. Raises `BadInput` for the mode `bypass`."""
    if settings.permission_mode == "bypass":
        raise BadInput(_NO_BYPASS)
    rules, sandbox = settings.permissions, settings.sandbox
    return SavedRights(
        mode=settings.permission_mode,
        allow=_rule_texts(rules.allow),
        ask=_rule_texts(rules.ask),
        deny=_rule_texts(rules.deny),
        budget=budget(settings),
        steps=settings.limits.turn_steps(watched=False),
        sandbox=sandbox.profile,
        network=sandbox.network,
        writable=sandbox.writable,
        tools=options.tool_names,
        user_namespaces=sandbox.user_namespaces,
    )


def options_of_run(options: LaunchOptions, schedule: Schedule) -> LaunchOptions:
    """Return `options` changed for a run of this schedule, in which no user can be asked."""
    plan = schedule.plan
    return replace(
        options,
        model=plan.model or options.model,
        attended=False,
        tool_names=plan.rights.tools,
        schedule=schedule.id,
    )


def narrow_settings(settings: Settings, saved: SavedRights) -> Settings:
    """Return `settings` limited to the saved rights."""
    rules, sandbox, own = settings.permissions, settings.sandbox, settings.budget
    profile = min(saved.sandbox, sandbox.profile, key=_PROFILES_BY_STRICTNESS.index)
    limit = saved.budget
    steps = settings.limits.turn_steps(watched=False)
    if limit.tokens is None and own.tokens == DEFAULT_TOKENS:
        # Only dollars were limited: see `config.load.combined`.
        own = replace(own, tokens=0)
    return replace(
        settings,
        permission_mode="default" if saved.mode == "bypass" else saved.mode,
        permissions=replace(
            rules,
            allow=saved.allow,
            ask=(*rules.ask, *saved.ask),
            deny=(*rules.deny, *saved.deny, *_DENIED_TOOLS),
        ),
        sandbox=replace(
            sandbox,
            profile=profile,
            network=sandbox.network and saved.network,
            user_namespaces=sandbox.user_namespaces and saved.user_namespaces,
            sign_commits=False,  # no user watches
            writable=tuple(path for path in sandbox.writable if path in saved.writable),
        ),
        limits=replace(settings.limits, steps=min(steps, saved.steps)),
        budget=replace(
            own,
            dollars=_lower_limit(own.dollars, limit.dollars),
            tokens=int(_lower_limit(own.tokens, limit.tokens)),
            calls=int(_lower_limit(own.calls, limit.calls)),
            seconds=_lower_limit(own.seconds, limit.seconds),
        ),
    )


def _allows_scheduling(rule: str) -> bool:
    return rule.partition("(")[0].strip() in _DENIED_TOOLS


def _lower_limit(own: float, saved: float | None) -> float:
    """Return the lower of two limits, of which 0 and None mean no limit."""
    limits = [limit for limit in (own, saved) if limit]
    return min(limits, default=0)


def _rule_texts(rules: Iterable[str | RuleWithCases]) -> tuple[str, ...]:
    return tuple(r.rule if isinstance(r, RuleWithCases) else r for r in rules)
