"""An agent as a value: its prompt, its tools, its rules and its limits.

A profile only restricts: it leaves tools out, adds rules that ask or deny, and sets lower
limits; only settings and the user decide which calls run without a question. For code that a
model writes, the lower limit of profile and settings counts. `registry` finds an agent by name,
and `tools.tool_search` has the tools that find deferred tools. Pure.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from refold.permissions.rules import COMMAND_TOOLS, Rule, is_about_reads, parse
from refold.tools.contract import Tool
from refold.tools.tool_search import search_tools
from refold.values.modes import Mode
from refold.values.tools import CALLER_TOOL, Effect

Role: TypeAlias = Literal["main", "small", "big", "judge"]
Use: TypeAlias = Literal["main", "child", "both"]
# Ways to act. native: the provider's tool calls; text: the text protocol; code: Python
# cells.
Acting: TypeAlias = Literal["native", "text", "code"]
ALL_EFFECTS = frozenset(Effect)
_WILDCARD_CHARS = frozenset("*?[")  # which make a name a pattern
READ_ONLY_EFFECTS = frozenset((Effect.LOOK, Effect.ASK, Effect.SELF))
_NAMED_TOOLS = ("repo_map",)  # only agents that name it get this tool


class TurnLimits(Struct, frozen=True):
    """The limits of a turn. 0 means the limit of the settings."""

    steps: int = 0  # model responses
    output: int = 0  # tokens of one response
    result: int = 0  # characters of one tool result


class CodeLimits(Struct, frozen=True):
    """The limits of code that a model writes. 0 means the limit of the settings."""

    fan_out: int = 0  # items of one map_lm or map_rlm
    at_once: int = 0  # concurrent model calls and children of a session
    depth: int = 0  # levels of children
    # Seconds of one cell, not counting the time during which it waits for calls.
    cell: float = 0.0
    call: float = 0.0  # seconds of one leaf call


class Profile(Struct, frozen=True, kw_only=True):
    """An agent. `tools` and `deferred` are names, or patterns like `mcp__*`.

    A deferred tool is offered once the model has searched for it; a tool that is in both
    `tools` and `deferred` is deferred. A tool whose effect is not in `effects` is never
    offered, even if it is named.
    """

    name: str
    description: str  # read by the user or the model that chooses an agent
    prompt: str = ""  # "": the prompt of the preset
    short: str = ""  # the prompt for a small model; "": `prompt`
    version: int = 0  # of the prompt
    role: Role = "main"  # the role of its model in the settings
    tools: tuple[str, ...] = ("*",)
    deferred: tuple[str, ...] = ()
    # The name of a tool, and a text that is put before its description.
    descriptions: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()  # tools that it never gets, even if they are named
    effects: frozenset[Effect] = ALL_EFFECTS
    ask: tuple[str, ...] = ()  # rules, in addition to all others
    deny: tuple[str, ...] = ()
    bounds: TurnLimits = TurnLimits()
    code_limits: CodeLimits = CodeLimits()
    mode: Mode | Literal[""] = ""  # its first mode; "": the mode of the settings
    then: str = ""  # the agent that carries out its plans
    memory: bool = True  # whether its prompt contains the memory
    skills: bool = True  # whether its prompt contains the list of skills
    acting: Acting = "native"
    use: Use = "both"  # main: for the user; child: for another agent; both
    where: str = ""  # its file, escaped for a screen; "": built in

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The agent's permission rules. Raises `BadInput` for an invalid rule."""
        source = f"agent {self.name}"
        asking = (parse(text, "ask", source) for text in self.ask)
        return (*asking, *(parse(text, "deny", source) for text in self.deny))

    @property
    def reading(self) -> tuple[Rule, ...]:
        """The rules about reading, which apply to tools, commands and code alike."""
        return tuple(rule for rule in self.rules if is_about_reads(rule.tool))


def preset_notice(profile: Profile, preset: str) -> str:
    """Return a notice that this agent's own prompt replaces the user's `preset`.

    Return "" if it does not.
    """
    if not (preset and profile.prompt):
        return ""
    return f"the preset {preset!r} is not used: the agent {profile.name} has a prompt of its own"


class CodeSettings(Struct, frozen=True):
    """The settings for agents that write code. In these fields 0 means zero."""

    code_limits: CodeLimits
    steps: int  # model responses in a turn of an agent that acts by code


def with_settings(profile: Profile, code_settings: CodeSettings) -> Profile:
    """Return the profile with the stricter of its limits and those of the settings.

    In the prompt of an agent that acts by code, `{fan_out}` and the names of the other limits are
    replaced by their values.
    """
    own, limits = profile.code_limits, code_settings.code_limits
    code_limits = CodeLimits(
        fan_out=_lower_limit(own.fan_out, limits.fan_out),
        at_once=_lower_limit(own.at_once, limits.at_once),
        depth=_lower_limit(own.depth, limits.depth),
        cell=min(own.cell or limits.cell, limits.cell),
        call=min(own.call or limits.call, limits.call),
    )
    if profile.acting != "code":
        return replace(profile, code_limits=code_limits)
    bounds = replace(
        profile.bounds, steps=_lower_limit(profile.bounds.steps, code_settings.steps)
    )
    prompt, short = profile.prompt, profile.short
    for name, value in (*asdict(code_limits).items(), ("steps", bounds.steps)):
        prompt = prompt.replace(f"{{{name}}}", f"{value:g}")
        short = short.replace(f"{{{name}}}", f"{value:g}")
    return replace(
        profile, code_limits=code_limits, bounds=bounds, prompt=prompt, short=short
    )


def _lower_limit(own: int, limit: int) -> int:
    """Return the lower limit. An `own` limit of 0 means that the agent has no limit of its
    own.
    """
    return min(own or limit, limit)


class OfferedTools(Struct, frozen=True):
    """The tools that an agent has in a turn.

    Requests contain the `active` tools completely, but only the names of the `deferred` tools.
    """

    active: tuple[Tool, ...]
    deferred: Sequence[Tool] = ()


def tools_of(profile: Profile, every: Iterable[Tool]) -> OfferedTools:
    """Return those tools of `every` that this agent has, and the tools that find deferred
    tools.
    """
    available = [
        _with_descriptions(tool, profile.descriptions)
        for tool in every
        if tool.effect in profile.effects and not _is_left_out(tool, profile.without)
    ]
    deferred = tuple(tool for tool in available if _is_offered(tool, profile.deferred))
    active = tuple(
        tool
        for tool in available
        if tool not in deferred and _is_offered(tool, profile.tools)
    )
    # If a plug-in has replaced the tool that calls deferred tools, none can be deferred.
    if any(tool.name == CALLER_TOOL for tool in active):
        return OfferedTools((*active, *deferred))
    return OfferedTools((*active, *search_tools(deferred)), deferred)


def _with_descriptions(tool: Tool, descriptions: Iterable[tuple[str, str]]) -> Tool:
    """Return the tool with the texts for its name put before its own description.

    `descriptions` has pairs of a tool's name and a text.
    """
    words = [text for name, text in descriptions if name == tool.name]
    if not words:
        return tool
    return replace(tool, description="\n".join((*words, tool.description)))


def may_use(profile: Profile, name: str, effect: Effect) -> bool:
    """Whether the agent may have a tool of this name and effect."""

    def matches_any(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    if effect not in profile.effects or matches_any(profile.without):
        return False
    return matches_any((*profile.tools, *profile.deferred))


def _is_left_out(tool: Tool, without: tuple[str, ...]) -> bool:
    """Whether the names in `without` exclude a tool.

    If they exclude `bash`, all tools that run commands are excluded.
    """
    runs_commands = tool.command is not None or tool.name in COMMAND_TOOLS
    if runs_commands and any(fnmatchcase("bash", pattern) for pattern in without):
        return True
    return _matches(tool, without)


def _is_offered(tool: Tool, patterns: tuple[str, ...]) -> bool:
    """Whether one of `patterns` includes a tool.

    A tool that a command implements must be named: `*` does not include it.
    """
    must_be_named = tool.command is not None or tool.name in _NAMED_TOOLS
    return tool.name in patterns if must_be_named else _matches(tool, patterns)


def _matches(tool: Tool, patterns: tuple[str, ...]) -> bool:
    """Whether the tool's name is in the patterns, or matches one with a wildcard."""
    name = tool.name
    return name in patterns or any(
        fnmatchcase(name, pattern) for pattern in _wildcard_patterns(patterns)
    )


@lru_cache
def _wildcard_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `patterns` that contain a wildcard.

    The result is cached, because a start needs it several times for each tool.
    """
    return tuple(pattern for pattern in patterns if not _WILDCARD_CHARS.isdisjoint(pattern))
