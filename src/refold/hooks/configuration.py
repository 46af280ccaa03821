"""Hooks as they are configured: reads `hooks.json` and the settings files of Claude Code.

A file is an object from events to lists of `{"matcher": …, "hooks": […]}`, alone or under the
key `hooks`. What cannot be understood is an error and not left out: a hook that is missing
may be one that was meant to refuse something. Pure. `app.session_hooks` finds the files and
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
from refold.values.hosts import expanded_all
from refold.values.modes import HookEvent
from refold.values.printable_names import shorten
from refold.values.similar_names import similar

EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
# What waits for the consent of these does not go on without it.
GUARDS: tuple[HookEvent, ...] = ("PreToolUse", "UserPromptSubmit")
_SECONDS: Mapping[str, float] = {"SessionEnd": 5.0, "Notification": 10.0}
_USUAL, _MOST = 60.0, 600.0  # seconds
_AT_THE_END = 30.0  # seconds that leaving may take, at most
_EVERY = ("", "*")
_OF_SERVERS = re.compile("mcp|__")  # in a matcher: it may fit a tool that is not known yet
_PROGRAM = "this program"  # where a function is from
_SHOWN = 40  # characters of a command
_FIELDS = {"command": "command", "python": "entry_point"}  # what each type needs
_KEYS_OF_GROUP = ("matcher", "hooks")
_KEYS_OF_HOOK = (
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
    seconds: float = _USUAL
    sandbox: bool = True
    required: bool = True
    source: str = ""
    title: str = ""  # what its user calls it
    of_claude: bool = False  # its file is written for another program
    function: Callable[[Mapping[str, object]], object] | None = None
    hosts: tuple[str, ...] = ()  # that it reaches, as patterns of `values.hosts`

    @property
    def name(self) -> str:
        """What its user calls it, or what is run, on one line, perhaps cut."""
        what = self.title or self.command or self.entry_point
        return shorten(" ".join(what.split()), _SHOWN)

    @cached_property
    def key(self) -> str:
        """Tells it apart from other hooks, as long as it is not changed."""
        parts = (self.on, self.matcher, self.command, self.entry_point, self.source)
        return sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.matcher)

    def fits(self, names: Sequence[str]) -> bool:
        """Whether it is run for what has one of these names; without names always."""
        if self.matcher in _EVERY or not names:
            return True
        return any(self._pattern.fullmatch(name) for name in names)


def matching(hooks: Sequence[Hook], on: HookEvent, *names: str) -> tuple[Hook, ...]:
    """The hooks of an event, in their order. A tool is found by all its names."""
    if on in ("PreToolUse", "PostToolUse"):
        names = tuple(alias for name in names for alias in names_of(name))
    return tuple(hook for hook in hooks if hook.on == on and hook.fits(names))


class HookFile(Struct, frozen=True):
    """What a file says. `problems` are sentences about hooks that are not run."""

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
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{source}: the hooks cannot be read: {error}") from error
    if isinstance(found, dict) and "hooks" in found:
        found = cast("dict[str, object]", found)["hooks"]
    if not isinstance(found, dict):
        raise BadInput(f"{source}: hooks must be an object from events to lists of hooks")
    hooks, problems = list[Hook](), list[str]()
    for each in _of_events(cast("dict[str, object]", found), source, of_claude=of_claude):
        if isinstance(each, Hook):
            hooks.append(each)
        elif of_claude:
            problems.append(f"not run: {each.why}")
        else:
            raise BadInput(each.why)
    for hook in hooks:
        free = hook.entry_point or not hook.sandbox or hook.hosts
        if not trusted_with_all and free:
            what = "leave the sandbox" if hook.sandbox is False else "reach hosts"
            what = "name an entry point" if hook.entry_point else what
            raise BadInput(
                f"{source}: a hook of a project must not {what}: write it into your own "
                "hooks.json if you want it"
            )
    return HookFile(tuple(hooks), tuple(problems))


def of_functions(functions: Mapping[str, object]) -> tuple[Hook, ...]:
    """The functions of a program as hooks: for each event one, or a sequence of them.

    Raises `BadInput` for another event, and for what cannot be called.
    """
    hooks = list[Hook]()
    for event, value in functions.items():
        if event not in EVENTS:
            raise BadInput(_no_event("hooks", event))
        several = isinstance(value, list | tuple)
        for each in cast("Sequence[object]", value) if several else (value,):
            if not callable(each):
                raise BadInput(f"hooks[{event!r}]: {each!r} is not a function")
            function = cast("Callable[[Mapping[str, object]], object]", each)
            title = str(getattr(function, "__name__", type(each).__name__))
            source = f"{_PROGRAM} ({len(hooks) + 1})"  # tells two of one name apart
            seconds = _SECONDS.get(event, _USUAL)
            hooks.append(
                Hook(event, seconds=seconds, source=source, title=title, function=function)
            )
    return tuple(hooks)


def _no_event(where: str, event: str) -> str:
    there_are = ", ".join(EVENTS)
    return f"{where}: there is no hook event {event!r}; the events are {there_are}"


def unfit(hooks: Sequence[Hook], tools: Collection[str]) -> Iterator[str]:
    """Sentences about matchers that fit none of these tools, and no tool of an MCP server."""
    names = [name for tool in tools for name in names_of(tool)]
    matchers = {
        hook.matcher: hook
        for hook in hooks
        if hook.on in ("PreToolUse", "PostToolUse") and not hook.of_claude
    }
    for matcher, hook in matchers.items():
        if not hook.fits(names) and not _OF_SERVERS.search(matcher):
            yield (
                f"{hook.source}: the matcher {matcher!r} fits no tool: it is compared with "
                "the tool's name, such as Bash"
            )


def in_words(file: HookFile) -> tuple[str, ...]:
    """A line for each hook and problem, for a screen."""
    return (*map(describe, file.hooks), *file.problems)


def describe(hook: Hook) -> str:
    """When it is run, and what is run."""
    if hook.entry_point or hook.function:
        return f"{_when(hook)} calls: {hook.entry_point or hook.name}"
    how = "" if hook.sandbox else " (outside the sandbox)"
    return f"{_when(hook)} runs{how}: {hook.command}"


def _when(hook: Hook) -> str:
    return hook.on if hook.matcher in _EVERY else f"{hook.on} of {hook.matcher}"


class _NotKnown(Struct, frozen=True):
    why: str


def _of_events(
    found: Mapping[str, object], source: str, *, of_claude: bool
) -> Iterator[Hook | _NotKnown]:
    for event, groups in found.items():
        if event not in EVENTS:
            yield _NotKnown(_no_event(source, event))
            continue
        where = f"{source}: hooks.{event}"
        for group in _objects(groups, where):
            if not of_claude:
                _check_keys(group, _KEYS_OF_GROUP, where)
            matcher = _text(group, "matcher", where)
            _check_pattern(matcher, where)
            for said in _objects(group.get("hooks"), f"{where}, hooks"):
                if not of_claude and said.get("type", "command") in (*_FIELDS,):
                    _check_keys(said, _KEYS_OF_HOOK, where)
                yield _hook(event, matcher, said, source, of_claude=of_claude)


def _hook(
    on: HookEvent,
    matcher: str,
    said: Mapping[str, object],
    source: str,
    *,
    of_claude: bool,
) -> Hook | _NotKnown:
    where, kind = f"{source}: hooks.{on}", said.get("type", "command")
    if kind not in (*_FIELDS,):
        return _NotKnown(f"{where}: the type {kind!r} is not known: use command or python")
    field = _FIELDS[str(kind)]
    what = _text(said, field, where)
    if not what.strip():
        raise BadInput(f"{where}: a hook of the type {kind} needs a {field!r}")
    return Hook(
        on,
        matcher,
        command=what if field == "command" else "",
        entry_point=what if field == "entry_point" else "",
        seconds=_seconds(said.get("timeout"), on, where),
        sandbox=_flag(said, "sandbox", where, usual=True),
        required=_flag(said, "required", where, usual=True),
        source=source,
        title="" if of_claude else _text(said, "name", where),
        of_claude=of_claude,
        hosts=_hosts(said, where),
    )


def _check_keys(said: Mapping[str, object], known: Sequence[str], where: str) -> None:
    for key in said:
        if key not in known:
            near = similar(key, known, 1)
            hint = (
                f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
            )
            raise BadInput(f"{where}: the key {key!r} is not known; {hint}")


def _seconds(given: object, on: HookEvent, where: str) -> float:
    if given is None:
        return _SECONDS.get(on, _USUAL)
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
        raise BadInput(f"{where}: timeout cannot be {given!r}: give seconds above 0")
    return min(float(given), _AT_THE_END if on == "SessionEnd" else _MOST)


def _flag(said: Mapping[str, object], name: str, where: str, *, usual: bool) -> bool:
    value = said.get(name, usual)
    if not isinstance(value, bool):
        raise BadInput(f"{where}: {name} cannot be {value!r}: give true or false")
    return value


def _hosts(said: Mapping[str, object], where: str) -> tuple[str, ...]:
    value = said.get("hosts", [])
    if not isinstance(value, list):
        raise BadInput(f"{where}: hosts cannot be {value!r}: give a list")
    try:
        return expanded_all(map(str, cast("list[object]", value)))
    except ValueError as error:
        raise BadInput(f"{where}: hosts: {error}") from error


def _text(said: Mapping[str, object], name: str, where: str) -> str:
    value = said.get(name, "")
    if not isinstance(value, str) or "\0" in value:
        raise BadInput(f"{where}: {name} cannot be {value!r}: give a text")
    return value


def _check_pattern(matcher: str, where: str) -> None:
    try:
        re.compile("" if matcher in _EVERY else matcher)
    except re.error as error:
        raise BadInput(
            f"{where}: the matcher {matcher!r} is not a regular expression: {error}"
        ) from error


def _objects(value: object, where: str) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list):
        raise BadInput(f"{where} must be a list")
    for each in cast("list[object]", value):
        if not isinstance(each, dict):
            raise BadInput(f"{where} must hold objects, and {each!r} is none")
        yield cast("dict[str, Any]", each)
