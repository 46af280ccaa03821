"""What plug-ins add to a start: tools, policies and commands, each failure named and isolated.

It is imported only if a package offers some. A plug-in that cannot be loaded, or whose name
is taken, is left out and named; the others count. `plugins` finds them; providers and hooks
are loaded where they are used.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from refold.engine.decide import Action, Note, Policy
from refold.errors import BadInput
from refold.journal.state.fold import View
from refold.plugins import Plugin
from refold.tools.contract import Tool
from refold.values.log_level import WriteLog

Command = Callable[
    ..., Any
]  # (session, rest) to a text, to nothing, or to one of these later


class PluginParts(Struct, frozen=True):
    """`notices` are sentences about what was left out."""

    tools: tuple[Tool, ...] = ()
    policies: tuple[Policy, ...] = ()
    commands: Mapping[str, Command] = {}
    notices: tuple[str, ...] = ()


def parts(found: Sequence[Plugin], taken: Collection[str], log: WriteLog) -> PluginParts:
    """Load these plug-ins. `taken` are the names of the tools that there are."""
    notices, tools = list[str](), dict[str, Tool]()
    policies, commands = list[Policy](), dict[str, Command]()
    for plugin in found:
        try:
            _add(plugin, {*taken, *tools}, tools, policies, commands, log)
        except BadInput as error:
            notices.append(str(error))
    return PluginParts(tuple(tools.values()), tuple(policies), commands, tuple(notices))


def _add(
    plugin: Plugin,
    taken: Collection[str],
    tools: dict[str, Tool],
    policies: list[Policy],
    commands: dict[str, Command],
    log: WriteLog,
) -> None:
    match plugin.group:
        case "refold.tools":
            new = {tool.name: tool for tool in _tools(plugin)}
            if clash := sorted(name for name in new if name in taken or _reserved(name)):
                raise plugin.broken(f"the name of its tool {clash[0]!r} is taken")
            tools.update(new)
        case "refold.policies":
            policies.append(_policy(plugin, log))
        case "refold.commands":
            if plugin.name in commands:
                raise plugin.broken("another plug-in has a command of this name")
            commands[plugin.name] = _function(plugin)
        case _:
            pass


def _reserved(name: str) -> bool:
    """The names of tools of MCP servers."""
    return name.startswith("mcp__")


def _tools(plugin: Plugin) -> Iterator[Tool]:
    found = plugin.load()
    each = (
        list(cast("Iterable[object]", found))
        if isinstance(found, list | tuple)
        else [found]
    )
    for one in each:
        if not isinstance(one, Tool):
            raise plugin.broken(f"{one!r} is not a tool: put @tool above its function")
        try:
            one.signature()
        except Exception as error:
            raise plugin.broken(f"{type(error).__name__}: {error}") from error
        yield one


def _policy(plugin: Plugin, log: WriteLog) -> Policy:
    """The policy, until it raises: then it is not asked again in this process."""
    function = _function(plugin)
    broken = False

    def policy(view: View) -> Action | Note | None:
        nonlocal broken
        if broken:
            return None
        try:
            return cast("Action | Note | None", function(view))
        except Exception as error:  # its bug must not take the session with it
            broken = True
            log("warning", str(plugin.broken(f"{type(error).__name__}: {error}")))
            return None

    policy.__name__ = plugin.name
    return policy


def _function(plugin: Plugin) -> Callable[..., Any]:
    found = plugin.load()
    if not callable(found):
        raise plugin.broken("it is not a function")
    return found
