"""The tools `tool_search` and `tool_call`: find and call deferred tools.

Each tool that is described in every request costs tokens, so rare ones are deferred:
the model knows only their names. The list of tools in a request never changes, so the
provider's prompt cache stays valid. An agent's profile names its deferred tools. A call
through `tool_call` becomes a call of the tool itself before it is judged.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.tools.contract import Reply, Tool, tool
from refold.values.display import Note
from refold.values.printable_names import shorten
from refold.values.tools import CALLER, Effect

_PICK = "select:"
_LIST = 700  # characters of the list of names; a description may have 1,024
_GIST = 60  # of what is told of each
_MOST = 20
_HALF, _ALIKE = 50.0, 80.0  # of 100
_HOW = f"Call one as {CALLER}(name, arguments)."


@tool(Effect.SELF)
async def tool_search(
    query: Annotated[str, Meta(description="keywords, or select:NAME,NAME")],
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 5,
    *,
    deferred: Sequence[Tool],
) -> Reply:
    """Find more tools and read their schemas; tool_call calls them."""
    wanted = query.strip()
    if wanted.startswith(_PICK):
        found = _picked(wanted.removeprefix(_PICK), deferred)
    else:
        found = _ranked(wanted, deferred)[:limit]
    if not found:
        raise ToolFailed(f"No tool is about {query!r}. {_there_are(deferred)}")
    names = ", ".join(each.name for each in found)
    return Reply("\n\n".join([*map(_told, found), _HOW]), (Note(f"found {names}"),))


@tool(Effect.SELF)
async def tool_call(
    name: str, arguments: dict[str, Any], *, deferred: Sequence[Tool]
) -> Reply:
    """Call a tool that tool_search found, with arguments as its schema says."""
    raise ToolFailed(_unknown(name, deferred))


def finding(deferred: Sequence[Tool], more: str = "") -> tuple[Tool, ...]:
    """The two tools that reach the `deferred` ones, with their names. Empty if there are none.

    `more` is a sentence about tools that are still to come.
    """
    if not deferred and not more:
        return ()
    listed = "; ".join(_listed(deferred))
    there = f"There are: {listed}." if listed else ""
    about = " ".join(filter(None, (tool_search.description, there, more)))
    return (
        replace(tool_search, description=about),
        tool_call,
    )


def _picked(names: str, deferred: Sequence[Tool]) -> list[Tool]:
    known = {tool.name: tool for tool in deferred}
    wanted = [name for each in names.split(",") if (name := each.strip())]
    for name in wanted:
        if name not in known:
            raise ToolFailed(_unknown(name, deferred))
    return [known[name] for name in dict.fromkeys(wanted)]


def _ranked(query: str, deferred: Sequence[Tool]) -> list[Tool]:
    words = query.casefold().replace("_", " ").split()
    scored = [(_score(words, tool), tool) for tool in deferred]
    best = sorted(scored, key=lambda each: -each[0])
    return [tool for score, tool in best if score >= _HALF]


def _score(words: Sequence[str], tool: Tool) -> float:
    """How much a tool is about these words: the mean of each one's likeness to it."""
    from rapidfuzz import fuzz, process

    name = tool.name.casefold().replace("_", " ").split()
    about = tool.description.casefold().split()

    def alike(word: str) -> float:
        if word in name:
            return 100.0
        in_name = process.extractOne(word, name, scorer=fuzz.ratio)
        in_words = process.extractOne(word, about, scorer=fuzz.ratio)
        likeness = max(
            in_name[1] if in_name else 0.0, in_words[1] * 0.9 if in_words else 0.0
        )
        return likeness if likeness >= _ALIKE * 0.9 else 0.0

    return sum(map(alike, words)) / len(words) if words else 0.0


def _told(tool: Tool) -> str:
    spec = tool.spec
    return f"{spec.name}: {spec.description}\narguments: {bytes(spec.parameters).decode()}"


def _listed(tools: Sequence[Tool]) -> Iterator[str]:
    """Each with its gist while there is room, then names, then how many more."""
    room = _LIST
    for at, each in enumerate(tools):
        gist = f"{each.name} ({_gist(each.description)})"
        line = gist if len(gist) <= room - 12 * (len(tools) - at) else each.name
        if len(line) > room:
            yield f"and {len(tools) - at} more"
            return
        room -= len(line) + 2
        yield line


def _gist(description: str) -> str:
    first = description.split(". ")[0].rstrip(".")
    words = first
    if not first.isprintable():  # an MCP server may send anything
        words = "".join(c if c.isprintable() else " " for c in first)
    return shorten(words, _GIST)


def _unknown(name: str, deferred: Sequence[Tool]) -> str:
    names = [tool.name for tool in deferred]
    if name in names:
        return (
            f"{name} was not called: give its arguments as one object, as its schema says."
        )
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=1)
    guess = f"Did you mean {near[0]!r}? " if near else ""
    return f"There is no tool {name!r} to be called so. {guess}{_there_are(deferred)}"


def _there_are(deferred: Sequence[Tool]) -> str:
    names = [tool.name for tool in deferred]
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"There are: {', '.join(names[:_MOST]) or 'none'}{more}."
