"""The tools that an agent is given: whole, or by name only. Pure.

A name decides which tools those are, an effect which they can never be. How deferred
ones are found and called is the business of `tools.tool_search`.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from refold.agents.profile import Profile
from refold.tools.contract import Tool
from refold.tools.tool_search import finding
from refold.values.tools import CALLER, ToolSpec

_LETTERS = 4  # of a token
_SHARE = 0.1  # of the window
_WINDOW = 32_000  # tokens, where it is not known


class Given(NamedTuple):
    """What the model is told whole, and what it is told only the names of."""

    active: tuple[Tool, ...]
    deferred: tuple[Tool, ...] = ()


def tools_of(profile: Profile, every: Iterable[Tool]) -> Given:
    """Those of `every` tool that this agent has. With deferred ones, the way to them too."""
    known = [
        tool
        for tool in every
        if tool.effect in profile.effects and not _named(tool, profile.without)
    ]
    deferred = tuple(tool for tool in known if _named(tool, profile.deferred))
    active = tuple(
        tool for tool in known if tool not in deferred and _named(tool, profile.tools)
    )
    if any(tool.spec.name == CALLER for tool in active):  # a name that somebody else took
        return Given((*active, *deferred))
    return Given((*active, *finding(deferred)), deferred)


def defer(tools: Sequence[Tool], window: int) -> Given:
    """All of `tools` by name only, if what is told of them fills a tenth of the window.

    `window` is in tokens; 0: it is not known.
    """
    letters = sum(told_size(tool.spec) for tool in tools)
    if letters / _LETTERS > (window or _WINDOW) * _SHARE:
        return Given((), tuple(tools))
    return Given(tuple(tools))


def told_size(spec: ToolSpec) -> int:
    """Characters that a model reads of a tool."""
    return len(spec.name) + len(spec.description) + len(bytes(spec.parameters))


def _named(tool: Tool, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(tool.spec.name, pattern) for pattern in patterns)
