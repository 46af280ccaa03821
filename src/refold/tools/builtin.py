"""Loads tools from entry points: the built-in ones, and those of packages.

The built-in tools are in `entry_points.txt`, in the order in which a model reads them. The
profile of an agent selects some of them; rules limit what they may access.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import cast

from refold.errors import BadInput
from refold.plugins import Plugin, own_plugins
from refold.tools.contract import Tool

TOOLS_GROUP = "refold.tools"  # the group of entry points


@cache
def builtin() -> tuple[Tool, ...]:
    tools, problems = load_tools(own_plugins(TOOLS_GROUP))
    assert not problems, problems  # problems mean that the installation is damaged
    return tools


def load_tools(
    plugins: Iterable[Plugin], reserved_names: Collection[str] = ()
) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Load the tools of these entry points.

    Also return a sentence for each entry point that is left out. An entry point is left out if
    one of its tools cannot be loaded or has a name that is taken.
    """
    names = set(reserved_names)
    tools, problems = list[Tool](), list[str]()
    for plugin in plugins:
        try:
            new = tuple(_tools(plugin))
            if clash := [tool.name for tool in new if tool.name in names]:
                raise plugin.error_about(f"the name of its tool {clash[0]!r} is taken")
        except BadInput as error:
            problems.append(str(error))
        else:
            tools += new
            names |= {tool.name for tool in new}
    return tuple(tools), tuple(problems)


def _tools(plugin: Plugin) -> Iterator[Tool]:
    """Yield the tools of a plug-in. Raises the plug-in's error if an item is not a tool."""
    loaded = plugin.load()
    objects = (
        cast("Iterable[object]", loaded) if isinstance(loaded, list | tuple) else (loaded,)
    )
    for item in objects:
        if not isinstance(item, Tool):
            raise plugin.error_about(
                f"{item!r} is not a tool: put @tool above its function"
            )
        if item.name.startswith("mcp__"):
            raise plugin.error_about(
                f"names like {item.name!r} are of tools of MCP servers"
            )
        if not plugin.ours:  # for all of our own tools, this would slow each start
            _read_types(plugin, item)
        yield item


def _read_types(plugin: Plugin, tool: Tool) -> None:
    """Raise an error that names the plug-in if the parameter types of its tool are invalid."""
    try:
        tool.signature()
    except Exception as error:
        raise plugin.error_about(f"{type(error).__name__}: {error}") from error
