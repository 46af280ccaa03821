"""Finds the tool whose definition a provider refuses, by its position or its name.

Schemas of MCP servers are translated before they are sent (`mcp.portable_schema`), but no list
knows every provider's subset of JSON Schema. `capability_fallback` leaves the tool out.
"""

import re
from collections.abc import Sequence

from refold.errors import ProviderError
from refold.values.tools import ToolSpec

_MAX_SEARCHED_CHARS = 20_000  # the part of a refusal that is searched
# Google puts all functions in one tool. Other messages contain `tools[3].function`,
# `tools.3.custom`, or the path of a validator: ("body", "tools", 3).
_INDEX_PATTERN = re.compile(
    r"""\btools(?:\[0\]\.function_?declarations\[(\d{1,4})\]"""
    r"""|\[(\d{1,4})\](?!\.function_?decl)|[./](\d{1,4})\b|\\?["'],\s?(\d{1,4})\b)""",
    re.IGNORECASE,
)
_ABOUT_MESSAGES_PATTERN = re.compile(r"\b(?:messages|contents|input)\W{1,4}\d")
_ANY_NAME_PATTERN = (
    r"""\b(?:tool|function)s?\b(?: name)?\W{0,3}["'`](%s)\\?["'`]|\b(mcp__\w[\w-]*)"""
)


def refused_tool(refusal: ProviderError, tools: Sequence[ToolSpec]) -> str:
    """Return the name of the tool that a refusal is about, or "" if it is none of `tools`.

    The body of the response is searched, because the message of the error is shortened.
    """
    body = refusal.answer or str(refusal).encode()
    text = body[:_MAX_SEARCHED_CHARS].decode(errors="replace")
    if index_match := _INDEX_PATTERN.search(text):
        index = int(next(group for group in index_match.groups() if group))
        return tools[index].name if index < len(tools) else ""
    if _ABOUT_MESSAGES_PATTERN.search(text):
        return ""
    names = [tool.name for tool in tools]
    pattern = _ANY_NAME_PATTERN % "|".join(map(re.escape, names))
    for match in re.finditer(pattern, text, re.IGNORECASE):
        name = match[1] or match[2]
        # The pattern ignores case, and also finds any name of an MCP tool.
        if name in names:
            return name
    return ""
