"""Hooks as they are configured: reads `hooks.json` and the settings files of Claude Code.

A file is an object from events to lists of `{"matcher": …, "hooks": […]}`, alone or under the
key `hooks`. An entry that cannot be parsed is an error and not skipped: the hook may be
meant to refuse something. Pure. `app.session_hooks` finds the files and
runs the hooks.

Functions of a program (`Agent(hooks=…)`) become hooks here and stand before those of the
files. A program that refuses a call need not write a file into the home of its user.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, cast, get_args

from msgspec import Struct

from refold.errors import BadInput
from refold.hooks.tool_names import names_of
from refold.values.hosts import expand_all
from refold.values.modes import HookEvent
from refold.values.printable_names import shorten
from refold.values.similar_names import similar

HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
# Events whose hooks can block a call or message.
GUARD_EVENTS: tuple[HookEvent, ...] = ("PreToolUse", "UserPromptSubmit")
_DEFAULT_SECONDS: Mapping[str, float] = {"SessionEnd": 5.0, "Notification": 10.0}
_USUAL_SECONDS, _MAX_SECONDS = 60.0, 600.0  # seconds
_MAX_END_SECONDS = 30.0  # for closing, at most
_MATCH_ALL = ("", "*")
# In a matcher: may match a tool that is unknown yet.
_SERVER_TOOL_PATTERN = re.compile("mcp|__")
_PROGRAM_SOURCE = "this program"  # the source of a function
_MAX_NAME_CHARS = 40  # of a command
_FIELD_BY_TYPE = {"command": "command", "python": "entry_point"}  # what each type needs
_GROUP_KEYS = ("matcher", "hooks")
_HOOK_KEYS = (
    "type", "command", "entry_point", "timeout", "sandbox", "required", "name", "hosts",
)  # fmt: skip


class Hook(Struct, frozen=True, dict=True):
    """One hook. It is a shell command, a function that a package offers as an entry point, or one
    of the program that uses refold as a library.

    `required`: if it fails, the call or message that it was run for is refused; for other
    events it means nothing. Without `sandbox` it can do what the user can.
    """

    on: HookEvent
    matcher: str = ""
    command: str = ""
    entry_point: str = ""
    seconds: float = _USUAL_SECONDS
    sandbox: bool = True
    required: bool = True
    source: str = ""
    title: str = ""  # its name from the user
    of_claude: bool = False  # from a file for another program
    function: Callable[[Mapping[str, object]], object] | None = None
    hosts: tuple[str, ...] = ()  # that it may reach, as patterns of `values.hosts`

    @property
    def name(self) -> str:
        """Its name from the user, or its command, on one line, cut if long."""
        label = self.title or self.command or self.entry_point
        return shorten(" ".join(label.split()), _MAX_NAME_CHARS)

    @cached_property
    def key(self) -> str:
        """An identifier of the hook, until it is changed."""
        parts = (self.on, self.matcher, self.command, self.entry_point, self.source)
        return sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.matcher)

    def fits(self, names: Sequence[str]) -> bool:
        """Whether the matcher accepts one of these names; True without names."""
        if self.matcher in _MATCH_ALL or not names:
            return True
        return any(self._pattern.fullmatch(name) for name in names)


def matching_hooks(
    hooks: Sequence[Hook], event: HookEvent, *names: str
) -> tuple[Hook, ...]:
    """The hooks of an event, in their order. A tool matches by any of its names."""
    if event in ("PreToolUse", "PostToolUse"):
        names = tuple(alias for name in names for alias in names_of(name))
    return tuple(hook for hook in hooks if hook.on == event and hook.fits(names))


class HookFile(Struct, frozen=True):
    """The content of a file. `problems` are sentences about hooks that are not run."""

    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()


def read(
    content: bytes, source: str, *, trusted_with_all: bool, of_claude: bool = False
) -> HookFile:
    """The hooks in a file, in its order. Raises `BadInput` that names what is wrong.

    `trusted_with_all` false is for a project's file: its hooks stay in the sandbox, and may
    not name an entry point. A file `of_claude` is written for another program: events and
    types that are not known here are problems, and no errors.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{source}: the hooks cannot be read: {error}") from error
    if isinstance(document, dict) and "hooks" in document:
        document = cast("dict[str, object]", document)["hooks"]
    if not isinstance(document, dict):
        raise BadInput(f"{source}: hooks must be an object from events to lists of hooks")
    hooks, problems = list[Hook](), list[str]()
    for item in _parse_events(
        cast("dict[str, object]", document), source, of_claude=of_claude
    ):
        if isinstance(item, Hook):
            hooks.append(item)
        elif of_claude:
            problems.append(f"not run: {item.why}")
        else:
            raise BadInput(item.why)
    for hook in hooks:
        free = hook.entry_point or not hook.sandbox or hook.hosts
        if not trusted_with_all and free:
            action = "leave the sandbox" if hook.sandbox is False else "reach hosts"
            action = "name an entry point" if hook.entry_point else action
            raise BadInput(
                f"{source}: a hook of a project must not {action}: write it into your own "
                "hooks.json if you want it"
            )
    return HookFile(tuple(hooks), tuple(problems))


def function_hooks(functions: Mapping[str, object]) -> tuple[Hook, ...]:
    """The functions of a program as hooks: for each event one, or a sequence of them.

    Raises `BadInput` for another event, and for what cannot be called.
    """
    hooks = list[Hook]()
    for event, value in functions.items():
        if event not in HOOK_EVENTS:
            raise BadInput(_unknown_event_text("hooks", event))
        several = isinstance(value, list | tuple)
        for candidate in cast("Sequence[object]", value) if several else (value,):
            if not callable(candidate):
                raise BadInput(f"hooks[{event!r}]: {candidate!r} is not a function")
            function = cast("Callable[[Mapping[str, object]], object]", candidate)
            title = str(getattr(function, "__name__", type(candidate).__name__))
            source = f"{_PROGRAM_SOURCE} ({len(hooks) + 1})"  # for two of one name
            seconds = _DEFAULT_SECONDS.get(event, _USUAL_SECONDS)
            hooks.append(
                Hook(event, seconds=seconds, source=source, title=title, function=function)
            )
    return tuple(hooks)


def _unknown_event_text(place: str, event: str) -> str:
    there_are = ", ".join(HOOK_EVENTS)
    return f"{place}: there is no hook event {event!r}; the events are {there_are}"


def unfit_matchers(hooks: Sequence[Hook], tools: Collection[str]) -> Iterator[str]:
    """Sentences about matchers that match none of these tools and no MCP tool."""
    names = [name for tool in tools for name in names_of(tool)]
    matchers = {
        hook.matcher: hook
        for hook in hooks
        if hook.on in ("PreToolUse", "PostToolUse") and not hook.of_claude
    }
    for matcher, hook in matchers.items():
        if not hook.fits(names) and not _SERVER_TOOL_PATTERN.search(matcher):
            yield (
                f"{hook.source}: the matcher {matcher!r} fits no tool: it is compared with "
                "the tool's name, such as Bash"
            )


def hook_lines(file: HookFile) -> tuple[str, ...]:
    """A line for each hook and problem, for display."""
    return (*map(describe, file.hooks), *file.problems)


def describe(hook: Hook) -> str:
    """A text about when the hook runs, and what it runs."""
    if hook.entry_point or hook.function:
        return f"{_event_text(hook)} calls: {hook.entry_point or hook.name}"
    suffix = "" if hook.sandbox else " (outside the sandbox)"
    return f"{_event_text(hook)} runs{suffix}: {hook.command}"


def _event_text(hook: Hook) -> str:
    return hook.on if hook.matcher in _MATCH_ALL else f"{hook.on} of {hook.matcher}"


class _NotKnown(Struct, frozen=True):
    why: str


def _parse_events(
    document: Mapping[str, object], source: str, *, of_claude: bool
) -> Iterator[Hook | _NotKnown]:
    for event, groups in document.items():
        if event not in HOOK_EVENTS:
            yield _NotKnown(_unknown_event_text(source, event))
            continue
        place = f"{source}: hooks.{event}"
        for group in _objects(groups, place):
            if not of_claude:
                _check_keys(group, _GROUP_KEYS, place)
            matcher = _text(group, "matcher", place)
            _check_pattern(matcher, place)
            for entry in _objects(group.get("hooks"), f"{place}, hooks"):
                if not of_claude and entry.get("type", "command") in (*_FIELD_BY_TYPE,):
                    _check_keys(entry, _HOOK_KEYS, place)
                yield _hook(event, matcher, entry, source, of_claude=of_claude)


def _hook(
    event: HookEvent,
    matcher: str,
    entry: Mapping[str, object],
    source: str,
    *,
    of_claude: bool,
) -> Hook | _NotKnown:
    place, kind = f"{source}: hooks.{event}", entry.get("type", "command")
    if kind not in (*_FIELD_BY_TYPE,):
        return _NotKnown(f"{place}: the type {kind!r} is not known: use command or python")
    field = _FIELD_BY_TYPE[str(kind)]
    text = _text(entry, field, place)
    if not text.strip():
        raise BadInput(f"{place}: a hook of the type {kind} needs a {field!r}")
    return Hook(
        event,
        matcher,
        command=text if field == "command" else "",
        entry_point=text if field == "entry_point" else "",
        seconds=_seconds(entry.get("timeout"), event, place),
        sandbox=_flag(entry, "sandbox", place, usual=True),
        required=_flag(entry, "required", place, usual=True),
        source=source,
        title="" if of_claude else _text(entry, "name", place),
        of_claude=of_claude,
        hosts=_hosts(entry, place),
    )


def _check_keys(entry: Mapping[str, object], keys: Sequence[str], place: str) -> None:
    for key in entry:
        if key not in keys:
            suggestions = similar(key, keys, 1)
            hint = (
                f"did you mean {suggestions[0]}?"
                if suggestions
                else f"the keys are {', '.join(keys)}"
            )
            raise BadInput(f"{place}: the key {key!r} is not known; {hint}")


def _seconds(value: object, event: HookEvent, place: str) -> float:
    if value is None:
        return _DEFAULT_SECONDS.get(event, _USUAL_SECONDS)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadInput(f"{place}: timeout cannot be {value!r}: give seconds above 0")
    return min(float(value), _MAX_END_SECONDS if event == "SessionEnd" else _MAX_SECONDS)


def _flag(entry: Mapping[str, object], name: str, place: str, *, usual: bool) -> bool:
    value = entry.get(name, usual)
    if not isinstance(value, bool):
        raise BadInput(f"{place}: {name} cannot be {value!r}: give true or false")
    return value


def _hosts(entry: Mapping[str, object], place: str) -> tuple[str, ...]:
    value = entry.get("hosts", [])
    if not isinstance(value, list):
        raise BadInput(f"{place}: hosts cannot be {value!r}: give a list")
    try:
        return expand_all(map(str, cast("list[object]", value)))
    except ValueError as error:
        raise BadInput(f"{place}: hosts: {error}") from error


def _text(entry: Mapping[str, object], name: str, place: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str) or "\0" in value:
        raise BadInput(f"{place}: {name} cannot be {value!r}: give a text")
    return value


def _check_pattern(matcher: str, place: str) -> None:
    try:
        re.compile("" if matcher in _MATCH_ALL else matcher)
    except re.error as error:
        raise BadInput(
            f"{place}: the matcher {matcher!r} is not a regular expression: {error}"
        ) from error


def _objects(value: object, place: str) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list):
        raise BadInput(f"{place} must be a list")
    for item in cast("list[object]", value):
        if not isinstance(item, dict):
            raise BadInput(f"{place} must hold objects, and {item!r} is none")
        yield cast("dict[str, Any]", item)
