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
from refold.values.tools import CALLER


class OfferedTools(NamedTuple):
    """What the model is told whole, and what it is told only the names of."""

    active: tuple[Tool, ...]
    deferred: tuple[Tool, ...] = ()


def tools_of(profile: Profile, every: Iterable[Tool]) -> OfferedTools:
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
        return OfferedTools((*active, *deferred))
    return OfferedTools((*active, *finding(deferred)), deferred)


def _named(tool: Tool, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(tool.spec.name, pattern) for pattern in patterns)
