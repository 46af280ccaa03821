"""Parses the hooks in `hooks.json` and in the settings files of Claude Code. Pure.

A file has an object from events to lists of `{"matcher": …, "hooks": […]}`, either as the whole
file or under the key `hooks`. An entry that cannot be parsed is an error, because the hook may
be meant to refuse something. `app.session_hooks` finds the files and runs the hooks.

A program that uses refold as a library can pass functions (`Agent(hooks=…)`), so that it need
not write a file into its user's home. They become hooks, too, and run before those of the
files.
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
_USUAL_SECONDS, _MAX_SECONDS = 60.0, 600.0
_MAX_END_SECONDS = 30.0  # for closing a session
_MATCH_ALL = ("", "*")
# A matcher with one of these may be meant for a tool of a server that is not connected yet.
_SERVER_TOOL_PATTERN = re.compile("mcp|__")
_PROGRAM_SOURCE = "this program"  # the source of a function
_MAX_NAME_CHARS = 40  # of a command
# The field that each type needs.
_FIELD_BY_TYPE = {"command": "command", "python": "entry_point"}
_HOOK_TYPES = tuple(_FIELD_BY_TYPE)  # a tuple, because a type in a file may not be hashable
_GROUP_KEYS = ("matcher", "hooks")
_HOOK_KEYS = (
    "type", "command", "entry_point", "timeout", "sandbox", "required", "name", "hosts",
)  # fmt: skip


class Hook(Struct, frozen=True, dict=True):
    """One hook: a shell command, an entry point of a package, or a function.

    The function belongs to the program that uses refold as a library. If a `required` hook
    fails, the call or message for which it ran is refused; at other events `required` has no
    effect. Without `sandbox` a command can do whatever the user can.
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
        """The user's title for the hook, or else its command or entry point, on one short line."""
        label = self.title or self.command or self.entry_point
        return shorten(" ".join(label.split()), _MAX_NAME_CHARS)

    @cached_property
    def key(self) -> str:
        """An identifier that changes with the event, matcher, command, entry point or source."""
        parts = (self.on, self.matcher, self.command, self.entry_point, self.source)
        return sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.matcher)

    def fits(self, names: Sequence[str]) -> bool:
        """Whether the matcher accepts one of `names`; True if `names` is empty."""
        if self.matcher in _MATCH_ALL or not names:
            return True
        return any(self._pattern.fullmatch(name) for name in names)


def matching_hooks(
    hooks: Sequence[Hook], event: HookEvent, *names: str
) -> tuple[Hook, ...]:
    """Return the hooks for an event whose matcher accepts one of `names`, in their order.

    At the events PreToolUse and PostToolUse, `names` are names of a tool. The matcher may also
    accept a name of the tool in Claude Code.
    """
    if event in ("PreToolUse", "PostToolUse"):
        names = tuple(alias for name in names for alias in names_of(name))
    return tuple(hook for hook in hooks if hook.on == event and hook.fits(names))


class HookFile(Struct, frozen=True):
    """The hooks in a file. `problems` are sentences about entries that are not run."""

    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()


def read(
    content: bytes, source: str, *, trusted_with_all: bool, of_claude: bool = False
) -> HookFile:
    """Parse the hooks in a file, in their order. Raises `BadInput` that names the error.

    `source` names the file. In a project's file, `trusted_with_all` is false: its hooks may not
    leave the sandbox, reach hosts or name an entry point. In a file `of_claude`, written for
    Claude Code, an unknown event or type is reported in `problems` and is not an error.
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
    events = cast("dict[str, object]", document)
    for item in _parse_events(events, source, of_claude=of_claude):
        if isinstance(item, Hook):
            hooks.append(item)
        elif of_claude:
            problems.append(f"not run: {item.why}")
        else:
            raise BadInput(item.why)
    for hook in hooks:
        action = "" if trusted_with_all else _action_that_needs_trust(hook)
        if action:
            raise BadInput(
                f"{source}: a hook of a project must not {action}: write it into your own "
                "hooks.json if you want it"
            )
    return HookFile(tuple(hooks), tuple(problems))


def _action_that_needs_trust(hook: Hook) -> str:
    """Return what the hook does that a project's hook may not do, as a phrase.

    Return "" if it does nothing of this kind.
    """
    if hook.entry_point:
        return "name an entry point"
    if not hook.sandbox:
        return "leave the sandbox"
    return "reach hosts" if hook.hosts else ""


def function_hooks(functions: Mapping[str, object]) -> tuple[Hook, ...]:
    """Return hooks for the functions that a program passes.

    `functions` maps an event to one function or to a list of functions. Raises `BadInput` for
    an unknown event, and for a value that cannot be called.
    """
    hooks = list[Hook]()
    for event, value in functions.items():
        if event not in HOOK_EVENTS:
            raise BadInput(_unknown_event_text("hooks", event))
        candidates: Sequence[object] = (value,)
        if isinstance(value, list | tuple):
            candidates = cast("Sequence[object]", value)
        for candidate in candidates:
            if not callable(candidate):
                raise BadInput(f"hooks[{event!r}]: {candidate!r} is not a function")
            function = cast("Callable[[Mapping[str, object]], object]", candidate)
            title = str(getattr(function, "__name__", type(candidate).__name__))
            # The number distinguishes two functions of one name.
            source = f"{_PROGRAM_SOURCE} ({len(hooks) + 1})"
            seconds = _DEFAULT_SECONDS.get(event, _USUAL_SECONDS)
            hooks.append(
                Hook(event, seconds=seconds, source=source, title=title, function=function)
            )
    return tuple(hooks)


def _unknown_event_text(place: str, event: str) -> str:
    there_are = ", ".join(HOOK_EVENTS)
    return f"{place}: there is no hook event {event!r}; the events are {there_are}"


def unfit_matchers(hooks: Sequence[Hook], tools: Collection[str]) -> Iterator[str]:
    """Yield a sentence about each matcher that accepts none of `tools` and no MCP tool.

    Matchers in files of Claude Code are not checked.
    """
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
    """Return one line for each hook and each problem of a file, for display."""
    return (*map(describe, file.hooks), *file.problems)


def describe(hook: Hook) -> str:
    """Return a text that says when a hook runs and what it runs."""
    if hook.entry_point or hook.function:
        return f"{_event_text(hook)} calls: {hook.entry_point or hook.name}"
    suffix = "" if hook.sandbox else " (outside the sandbox)"
    return f"{_event_text(hook)} runs{suffix}: {hook.command}"


def _event_text(hook: Hook) -> str:
    return hook.on if hook.matcher in _MATCH_ALL else f"{hook.on} of {hook.matcher}"


class _NotKnown(Struct, frozen=True):
    """An entry with an event or type that refold does not know. `why` is a sentence."""

    why: str


def _parse_events(
    document: Mapping[str, object], source: str, *, of_claude: bool
) -> Iterator[Hook | _NotKnown]:
    """Yield the entries of a file: hooks, and those of an unknown event or type.

    Raises `BadInput` for an entry that is invalid otherwise.
    """
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
                has_known_type = entry.get("type", "command") in _HOOK_TYPES
                if has_known_type and not of_claude:
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
    """Return the hook of one entry of a file, or an entry of an unknown type.

    Raises `BadInput` if it is invalid.
    """
    place = f"{source}: hooks.{event}"
    kind = entry.get("type", "command")
    if kind not in _HOOK_TYPES:
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
    """Raise `BadInput` for a key that is not in `keys`. `place` is the entry, for messages."""
    for key in entry:
        if key not in keys:
            hint = f"the keys are {', '.join(keys)}"
            if suggestions := similar(key, keys, 1):
                hint = f"did you mean {suggestions[0]}?"
            raise BadInput(f"{place}: the key {key!r} is not known; {hint}")


def _seconds(value: object, event: HookEvent, place: str) -> float:
    """Return the time limit of a hook. `value` is what the file sets; None means the
    default.

    A value above the maximum is reduced. Raises `BadInput` for a value that is not a positive
    number.
    """
    if value is None:
        return _DEFAULT_SECONDS.get(event, _USUAL_SECONDS)
    # `not value > 0` is also true for NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadInput(f"{place}: timeout cannot be {value!r}: give seconds above 0")
    max_seconds = _MAX_END_SECONDS if event == "SessionEnd" else _MAX_SECONDS
    return min(float(value), max_seconds)


def _flag(entry: Mapping[str, object], name: str, place: str, *, usual: bool) -> bool:
    """Return the boolean under the key `name`; `usual` if it is missing. Raises `BadInput`."""
    value = entry.get(name, usual)
    if not isinstance(value, bool):
        raise BadInput(f"{place}: {name} cannot be {value!r}: give true or false")
    return value


def _hosts(entry: Mapping[str, object], place: str) -> tuple[str, ...]:
    """Return the patterns of the hosts that a hook may reach. Raises `BadInput`."""
    value = entry.get("hosts", [])
    if not isinstance(value, list):
        raise BadInput(f"{place}: hosts cannot be {value!r}: give a list")
    try:
        return expand_all(map(str, cast("list[object]", value)))
    except ValueError as error:
        raise BadInput(f"{place}: hosts: {error}") from error


def _text(entry: Mapping[str, object], name: str, place: str) -> str:
    """Return the text under the key `name`; "" if it is missing. Raises `BadInput`."""
    value = entry.get(name, "")
    if not isinstance(value, str) or "\0" in value:
        raise BadInput(f"{place}: {name} cannot be {value!r}: give a text")
    return value


def _check_pattern(matcher: str, place: str) -> None:
    """Raise `BadInput` if `matcher` is not a regular expression."""
    try:
        re.compile("" if matcher in _MATCH_ALL else matcher)
    except re.error as error:
        raise BadInput(
            f"{place}: the matcher {matcher!r} is not a regular expression: {error}"
        ) from error


def _objects(value: object, place: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list. Raises `BadInput` for another value or another item."""
    if not isinstance(value, list):
        raise BadInput(f"{place} must be a list")
    for item in cast("list[object]", value):
        if not isinstance(item, dict):
            raise BadInput(f"{place} must hold objects, and {item!r} is none")
        yield cast("dict[str, Any]", item)
