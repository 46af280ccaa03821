"""The rights of scheduled runs: saved from a session or a start, and applied to a later start.

A run never has more rights than were saved, and the folder's settings on its day can
restrict them further: of two limits the stricter counts. `schedules.schedule_book` stores
schedules, `cli.scheduled_run` runs them.
"""

import time
from collections.abc import Iterable, Mapping

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
)
from refold.journal.state.fold import View
from refold.session.recorder import Recorder
from refold.values.usage import DEFAULT_TOKENS

_WIDER_MODES = ("accept-edits", "sandbox", "bypass")
_PROFILES_BY_STRICTNESS: tuple[SandboxProfile, ...] = ("read-only", "workspace", "off")
# A run does not plan further runs: the person approved this one.
_DENIED_TOOLS = ("schedule",)
_NOT_HERE = "this run ends with your answer and does not start it"
_NO_BYPASS = (
    "a schedule cannot have the mode bypass, since no user would see what it does: choose "
    "another mode, and allow with --allow what it needs"
)


class SessionSchedules:
    """Implements the tool `schedule` for the session `id_`."""

    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        settings: Settings,
        options: LaunchOptions,
        record: Recorder,
    ) -> None:
        self._places, self._environ = paths, environ
        self._settings, self._options, self._record = settings, options, record

    async def add(self, call: str, prompt: str, when: str, every: str) -> str:
        try:
            return await to_thread.run_sync(self._add, call, prompt, when, every)
        except (BadInput, JournalError) as error:
            text = str(error)
            raise ToolFailed(f"{text[:1].upper()}{text[1:]}.") from error

    def _add(self, call: str, prompt: str, when: str, every: str) -> str:
        view, now = self._record.view, time.time()
        plan = NewSchedule(
            prompt,
            str(self._options.directory),
            recurrence_of(when, every, now, self._environ),
            self._rights(view),
            view.session.agent,
            view.session.model or self._options.model,
            view.session.id,
        )
        key = f"{view.session.id}:{call}"
        book = ScheduleBook(
            self._places.data, masks_of(self._environ, self._places).mask_event
        )
        text = addition_text(book.add(plan, now, key))
        return text if self._options.attended else f"{text}; {_NOT_HERE}"

    def _rights(self, view: View) -> SavedRights:
        """The rights of the session, without those that only --trust granted."""
        settings, options, rights = self._settings, self._options, view.rights
        flags = to_flags(options.given)
        lasting = load_folder_settings(
            options.directory, self._places, self._environ, flags
        ).settings
        stays = set(_rule_texts(lasting.permissions.allow))
        allow = [r for r in _rule_texts(settings.permissions.allow) if r in stays]
        mode = rights.mode or settings.permission_mode
        settled = settings.permission_mode
        if mode == settled != lasting.permission_mode and mode in _WIDER_MODES:
            mode = "default"
        return replace(
            rights_of(replace(settings, permission_mode="default"), options),
            mode="default" if mode == "bypass" else mode,
            allow=tuple(
                r
                for r in dict.fromkeys((*allow, *rights.granted))
                if not _is_for_planning(r)
            ),
            budget=rights.budget or budget(settings),
            steps=rights.steps or settings.limits.turn_steps(watched=False),
        )


def recurrence_of(
    when: str, every: str, now: float, environ: Mapping[str, str], zone: str = ""
) -> Recurrence:
    """Raises `BadInput`."""
    if zone:
        recurrence.zone_of(zone)
    zone = zone or recurrence.local_zone(environ.get("TZ", ""))
    if when:
        return recurrence.parse_single(when, now, zone)
    return recurrence.parse_repeated(every, now, zone)


def addition_text(schedule: Schedule) -> str:
    """A line about a schedule that was added."""
    zone, due = schedule.plan.recurrence.zone, schedule.next
    when = recurrence.format_moment(due, zone) if due is not None else "never"
    return (
        f"schedule {schedule.id} is due {when}; an open session or server starts it then, or "
        "the timer of `refold schedule install`"
    )


def rights_of(settings: Settings, options: LaunchOptions) -> SavedRights:
    """The rights of a start. Raises `BadInput` for the mode bypass."""
    if settings.permission_mode == "bypass":
        raise BadInput(_NO_BYPASS)
    rules, sandbox = settings.permissions, settings.sandbox
    return SavedRights(
        settings.permission_mode,
        _rule_texts(rules.allow),
        _rule_texts(rules.ask),
        _rule_texts(rules.deny),
        budget(settings),
        settings.limits.turn_steps(watched=False),
        sandbox.profile,
        sandbox.network,
        sandbox.writable,
        options.tool_names,
        sandbox.user_namespaces,
    )


def narrow_settings(settings: Settings, saved: SavedRights) -> Settings:
    """Narrow today's settings to these rights."""
    rules, sandbox, own = settings.permissions, settings.sandbox, settings.budget
    profile = min(saved.sandbox, sandbox.profile, key=_PROFILES_BY_STRICTNESS.index)
    limit, steps = saved.budget, settings.limits.turn_steps(watched=False)
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


def _is_for_planning(rule: str) -> bool:
    return rule.partition("(")[0].strip() in _DENIED_TOOLS


def _lower_limit(own: float, saved: float | None) -> float:
    """The lower of two limits, where 0 and None mean no limit."""
    limits = [limit for limit in (own, saved) if limit]
    return min(limits, default=0)


def _rule_texts(rules: Iterable[str | RuleWithCases]) -> tuple[str, ...]:
    return tuple(r.rule if isinstance(r, RuleWithCases) else r for r in rules)
