"""An agent as a value: its prompt, its tools, its rules and its limits.

A profile only narrows: it leaves tools out, adds rules that ask or deny, and sets lower limits;
only settings and the user decide what runs without asking. The limits of code that a model writes are
the stricter of profile and settings. `registry` finds an agent by name, and `tools.tool_search`
has the tools that find deferred tools. Pure.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from refold.permissions.rules import COMMAND_TOOLS, Rule, parse, reads
from refold.tools.contract import Tool
from refold.tools.tool_search import search_tools
from refold.values.modes import Mode
from refold.values.tools import CALLER_TOOL, Effect

Role: TypeAlias = Literal["main", "small", "big", "judge"]
Use: TypeAlias = Literal["main", "child", "both"]
# native: the provider's tool calls; text: the text protocol; code: Python cells.
Acting: TypeAlias = Literal["native", "text", "code"]
ALL_EFFECTS = frozenset(Effect)
_WILDCARD_CHARS = frozenset("*?[")  # which make a name a pattern
READ_ONLY_EFFECTS = frozenset((Effect.LOOK, Effect.ASK, Effect.SELF))
_NAMED_TOOLS = ("repo_map",)  # only for agents that name them


class TurnLimits(Struct, frozen=True):
    """The limits of a turn. 0 means that of the settings."""

    steps: int = 0  # model responses
    output: int = 0  # tokens of one response
    result: int = 0  # characters of one tool result


class CodeLimits(Struct, frozen=True):
    """The limits of code that a model writes. 0 means that of the settings."""

    fan_out: int = 0  # items of one map_lm or map_rlm
    at_once: int = 0  # concurrent model calls and children of a session
    depth: int = 0  # levels of children
    cell: float = 0.0  # seconds of one cell, without the time that it waits for calls
    call: float = 0.0  # seconds of one leaf


class Profile(Struct, frozen=True, kw_only=True):
    """`tools` and `deferred` are names, or patterns like `mcp__*`; a tool in both is deferred.

    A tool whose effect is not in `effects` is never offered, even if it is named.
    """

    name: str
    description: str  # read by the user or the model that chooses an agent
    prompt: str = ""  # "": that of the preset
    short: str = ""  # the prompt for a small model; "": the same
    version: int = 0  # of the prompt
    role: Role = "main"  # of the model
    tools: tuple[str, ...] = ("*",)
    deferred: tuple[str, ...] = ()
    descriptions: tuple[tuple[str, str], ...] = ()  # of tools, put before their own
    without: tuple[str, ...] = ()  # tools that it never gets, even if they are named
    effects: frozenset[Effect] = ALL_EFFECTS
    ask: tuple[str, ...] = ()  # rules, in addition to all others
    deny: tuple[str, ...] = ()
    bounds: TurnLimits = TurnLimits()
    code_limits: CodeLimits = CodeLimits()
    mode: Mode | Literal[""] = ""  # its first mode; "": that of the settings
    then: str = ""  # the agent that carries out its plan
    memory: bool = True  # whether its prompt contains the memory
    skills: bool = True  # and the list of skills
    acting: Acting = "native"
    use: Use = "both"  # main: works for the user; child: for another agent
    where: str = ""  # its file, escaped for a screen; "": built in

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Its rules. Raises `BadInput` for an invalid one."""
        source = f"agent {self.name}"
        asking = (parse(text, "ask", source) for text in self.ask)
        return (*asking, *(parse(text, "deny", source) for text in self.deny))

    @property
    def reading(self) -> tuple[Rule, ...]:
        """The rules that apply to everything that reads: tools, commands and code."""
        return tuple(rule for rule in self.rules if reads(rule.tool))


def preset_notice(profile: Profile, preset: str) -> str:
    """A notice for the user who chose `preset`, if this agent has a prompt of its own; else ""."""
    if not (preset and profile.prompt):
        return ""
    return f"the preset {preset!r} is not used: the agent {profile.name} has a prompt of its own"


class CodeSettings(Struct, frozen=True):
    """The settings for agents that write code. Here 0 means zero."""

    code_limits: CodeLimits
    steps: int  # model responses in a turn of an agent that acts by code


def with_settings(profile: Profile, code_settings: CodeSettings) -> Profile:
    """The profile with the stricter of its limits and those of the settings.

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
    return min(own or limit, limit)


class OfferedTools(Struct, frozen=True):
    """`active` tools are in every request; of `deferred` ones, only the names are."""

    active: tuple[Tool, ...]
    deferred: Sequence[Tool] = ()


def tools_of(profile: Profile, every: Iterable[Tool]) -> OfferedTools:
    """The tools of this agent, with those that find its deferred tools."""
    known = [
        _with_descriptions(tool, profile.descriptions)
        for tool in every
        if tool.effect in profile.effects and not _is_left_out(tool, profile.without)
    ]
    deferred = tuple(tool for tool in known if _is_offered(tool, profile.deferred))
    active = tuple(
        tool for tool in known if tool not in deferred and _is_offered(tool, profile.tools)
    )
    if any(tool.name == CALLER_TOOL for tool in active):  # a plug-in has taken the name
        return OfferedTools((*active, *deferred))
    return OfferedTools((*active, *search_tools(deferred)), deferred)


def _with_descriptions(tool: Tool, descriptions: Iterable[tuple[str, str]]) -> Tool:
    words = [text for name, text in descriptions if name == tool.name]
    if not words:
        return tool
    return replace(tool, description="\n".join((*words, tool.description)))


def may_use(profile: Profile, name: str, effect: Effect) -> bool:
    """Whether a tool of this name and effect would be among those of the agent."""

    def matches_any(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    offered = matches_any((*profile.tools, *profile.deferred)) and not matches_any(
        profile.without
    )
    return offered and effect in profile.effects


def _is_left_out(tool: Tool, without: tuple[str, ...]) -> bool:
    """Whether a tool is excluded. Without `bash`, all tools that run commands are."""
    commands = tool.command is not None or tool.name in COMMAND_TOOLS
    runs = commands and any(fnmatchcase("bash", pattern) for pattern in without)
    return runs or _matches(tool, without)


def _is_offered(tool: Tool, patterns: tuple[str, ...]) -> bool:
    """Whether a tool is included. One with a command must be named: `*` is not enough."""
    must_be_named = tool.command or tool.name in _NAMED_TOOLS
    return tool.name in patterns if must_be_named else _matches(tool, patterns)


def _matches(tool: Tool, patterns: tuple[str, ...]) -> bool:
    name = tool.name
    return name in patterns or any(
        fnmatchcase(name, pattern) for pattern in _wildcard_patterns(patterns)
    )


@lru_cache
def _wildcard_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The wildcard patterns. Cached, because a start needs them several times per tool."""
    return tuple(pattern for pattern in patterns if not _WILDCARD_CHARS.isdisjoint(pattern))
