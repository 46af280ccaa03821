"""The tools `tool_search` and `tool_call`: find and call deferred tools.

Each tool that is described in every request costs tokens, so rare tools are deferred: the model
knows only their names. The list of tools in a request never changes, so the provider's prompt
cache stays valid. The profile of an agent names its deferred tools. A call of `tool_call`
becomes a call of the deferred tool before permissions are decided.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.tools.contract import Reply, Tool, tool
from refold.values.display import Note
from refold.values.printable_names import shorten
from refold.values.tools import CALLER_TOOL, Effect

_SELECT_PREFIX = "select:"
_MAX_LIST_CHARS = 700  # the length of the list of names; a description may have 1,024
_MAX_GIST_CHARS = 60  # the length of each tool's summary
_RESERVED_CHARS = 12  # for each name that is still to be listed
_MAX_RESULTS = 20
_DESCRIPTION_WEIGHT = 0.9  # a word that only the description has counts a tenth less
_MIN_SCORE, _MIN_LIKENESS = 50.0, 80.0  # of a maximum of 100
_CALL_HINT = f"Call one as {CALLER_TOOL}(name, arguments)."


@tool(Effect.SELF)
async def tool_search(
    query: Annotated[str, Meta(description="keywords, or select:NAME,NAME")],
    limit: Annotated[int, Meta(ge=1, le=_MAX_RESULTS)] = 5,
    *,
    deferred: Sequence[Tool],
) -> Reply:
    """Find more tools and read their schemas; tool_call calls them."""
    wanted = query.strip()
    if wanted.startswith(_SELECT_PREFIX):
        tools = _select(wanted.removeprefix(_SELECT_PREFIX), deferred)
    else:
        tools = _rank(wanted, deferred)[:limit]
    if not tools:
        raise ToolFailed(f"No tool is about {query!r}. {_available_names(deferred)}")
    names = ", ".join(match.name for match in tools)
    return Reply(
        "\n\n".join([*map(_describe, tools), _CALL_HINT]), (Note(f"found {names}"),)
    )


@tool(Effect.SELF)
async def tool_call(
    name: str, arguments: dict[str, Any], *, deferred: Sequence[Tool]
) -> Reply:
    """Call a tool that tool_search found, with arguments as its schema says."""
    raise ToolFailed(_unknown_tool(name, deferred))


def search_tools(deferred: Sequence[Tool], note: str = "") -> tuple[Tool, ...]:
    """Return the tools that find and call the `deferred` tools.

    The description of `tool_search` lists the names of the `deferred` tools. `note` is a
    sentence about tools that are not loaded yet. Return () if there are neither `deferred`
    tools nor a `note`.
    """
    if not deferred and not note:
        return ()
    names = "; ".join(_list_names(deferred))
    names_text = f"There are: {names}." if names else ""
    description = " ".join(filter(None, (tool_search.description, names_text, note)))
    return (replace(tool_search, description=description), tool_call)


def _select(names: str, deferred: Sequence[Tool]) -> list[Tool]:
    """Return the tools with these names, separated by commas. Raises `ToolFailed`."""
    known = {tool.name: tool for tool in deferred}
    wanted = [name for part in names.split(",") if (name := part.strip())]
    for name in wanted:
        if name not in known:
            raise ToolFailed(_unknown_tool(name, deferred))
    return [known[name] for name in dict.fromkeys(wanted)]


def _rank(query: str, deferred: Sequence[Tool]) -> list[Tool]:
    """Return the tools that match the words well enough, the best first."""
    words = query.casefold().replace("_", " ").split()
    scored = [(_score(words, tool), tool) for tool in deferred]
    best = sorted(scored, key=lambda pair: -pair[0])
    return [tool for score, tool in best if score >= _MIN_SCORE]


def _score(words: Sequence[str], tool: Tool) -> float:
    """Return how well a tool matches the words: the mean of the scores of the words."""
    from rapidfuzz import fuzz, process

    name_words = tool.name.casefold().replace("_", " ").split()
    description_words = tool.description.casefold().split()

    def likeness(word: str) -> float:
        """Return how similar `word` is to the nearest word of the tool, up to 100; 0 if too
        little.
        """
        if word in name_words:
            return 100.0
        in_name = process.extractOne(word, name_words, scorer=fuzz.ratio)
        in_description = process.extractOne(word, description_words, scorer=fuzz.ratio)
        best = in_name[1] if in_name else 0.0
        if in_description:
            best = max(best, in_description[1] * _DESCRIPTION_WEIGHT)
        return best if best >= _MIN_LIKENESS * _DESCRIPTION_WEIGHT else 0.0

    return sum(map(likeness, words)) / len(words) if words else 0.0


def _describe(tool: Tool) -> str:
    spec = tool.spec
    return f"{spec.name}: {spec.description}\narguments: {bytes(spec.parameters).decode()}"


def _list_names(tools: Sequence[Tool]) -> Iterator[str]:
    """Yield the names of tools with summaries while there is space, then names alone.

    The last item says how many tools are left out.
    """
    chars_left = _MAX_LIST_CHARS
    for index, item in enumerate(tools):
        tools_left = len(tools) - index
        gist = f"{item.name} ({_summarize(item.description)})"
        max_gist_chars = chars_left - _RESERVED_CHARS * tools_left
        line = gist if len(gist) <= max_gist_chars else item.name
        if len(line) > chars_left:
            yield f"and {tools_left} more"
            return
        chars_left -= len(line) + 2
        yield line


def _summarize(description: str) -> str:
    """Return the first sentence of a description as one short line."""
    first = description.split(". ")[0].rstrip(".")
    words = first
    if not first.isprintable():  # an MCP server may send anything
        words = "".join(c if c.isprintable() else " " for c in first)
    return shorten(words, _MAX_GIST_CHARS)


def _unknown_tool(name: str, deferred: Sequence[Tool]) -> str:
    """Return why a call of the tool `name` failed: a wrong form, or no such tool."""
    names = [tool.name for tool in deferred]
    if name in names:
        return (
            f"{name} was not called: give its arguments as one object, as its schema says."
        )
    from difflib import get_close_matches

    suggestions = get_close_matches(name, names, n=1)
    guess = f"Did you mean {suggestions[0]!r}? " if suggestions else ""
    return f"There is no tool {name!r} to be called so. {guess}{_available_names(deferred)}"


def _available_names(deferred: Sequence[Tool]) -> str:
    names = [tool.name for tool in deferred]
    ellipsis = f" and {len(names) - _MAX_RESULTS} more" if len(names) > _MAX_RESULTS else ""
    return f"There are: {', '.join(names[:_MAX_RESULTS]) or 'none'}{ellipsis}."
