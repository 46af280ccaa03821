"""Makes tools of what servers offer: `mcp__server__tool`, which always run and never only look.

Hints of a server ("read only") decide nothing. A description is text of another program: its
length is bounded, invisible characters are written out. Two tools whose names would be the
same are both refused, in whichever order they came. `connections` makes the calls.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from keyword import iskeyword
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from refold.errors import ToolFailed
from refold.mcp.manifests import RemoteTool
from refold.tools.contract import Context, Reply, Tool
from refold.values.json_check import keys_are_unique, repeated_key
from refold.values.text import clean, marked
from refold.values.tools import Effect, ToolSpec

PREFIX = "mcp__"
_LONGEST_NAME = 64  # that providers take
_DESCRIPTION = 2_048  # characters
_SCHEMA = 20_000  # characters of one schema
_SUBJECT = 1_000  # characters that a rule is held against, and a label shows
_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]")

Call = Callable[[str, str, Mapping[str, object], Context], Awaitable[Reply]]


class McpTool(Tool, frozen=True):
    """A tool of a server. Its arguments are one JSON object, which the server checks."""

    def parse(self, raw: bytes | Raw) -> dict[str, object]:
        try:
            found = msgspec.json.decode(raw, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ToolFailed(f"The arguments are not a JSON object: {error}") from error
        if not keys_are_unique(raw, found) and (key := repeated_key(raw)) is not None:
            raise ToolFailed(
                f"The arguments have the key {key!r} twice in one object, and it is unclear "
                "which value counts. Give it once. Nothing was done."
            )
        return {"arguments": found}

    def touches(self, arguments: Mapping[str, object]) -> str:
        return json.dumps(arguments["arguments"], ensure_ascii=False)[:_SUBJECT]


class ServerTools(Struct, frozen=True):
    """The tools of all servers, and sentences about those that are refused."""

    tools: tuple[McpTool, ...] = ()
    refused: tuple[str, ...] = ()


def as_tools(offers: Mapping[str, Sequence[RemoteTool]], call: Call) -> ServerTools:
    """`offers` are the tools of each server, by its name."""
    found, refused = list[McpTool](), list[str]()
    for server in sorted(offers):
        named = dict[str, list[RemoteTool]]()
        for tool in offers[server]:
            named.setdefault(tool_name(server, tool.name), []).append(tool)
        for name, several in named.items():
            if len(several) > 1:
                spelled = " and ".join(sorted(repr(tool.name) for tool in several))
                refused.append(
                    f"the MCP server {server} has the tools {spelled}, which would both be "
                    f"{name}: neither is used"
                )
            elif why := _unfit(several[0]):
                refused.append(f"the tool {name} is not used: {why}")
            else:
                found.append(_tool(server, name, several[0], call))
    return ServerTools(tuple(found), tuple(refused))


def tool_name(server: str, tool: str) -> str:
    """The name by which the model and the rules know it; a long one ends with its hash."""
    name = f"{PREFIX}{server}__{_UNUSUAL.sub('_', tool)}"
    if len(name) <= _LONGEST_NAME:
        return name
    mark = sha256(tool.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{mark}"


def size(tools: Iterable[Tool]) -> int:
    """The characters that these tools take up in each request."""
    return sum(
        len(t.spec.name) + len(t.spec.description) + len(bytes(t.spec.parameters))
        for t in tools
    )


def _tool(server: str, name: str, remote: RemoteTool, call: Call) -> McpTool:
    async def run(*, arguments: Mapping[str, object], context: Context) -> Reply:
        return await call(server, remote.name, arguments, context)

    words, _ = marked(clean(remote.description))
    about = words if len(words) <= _DESCRIPTION else f"{words[: _DESCRIPTION - 1]}…"
    parameters = Raw(json.dumps(_schema(remote)).encode())
    spec = ToolSpec(name, f"[MCP server {server}] {about}", parameters)
    return McpTool(
        spec,
        Effect.RUN,
        run,
        _arguments(name, remote),
        context="context",
        subject="arguments",
    )


def _schema(remote: RemoteTool) -> dict[str, Any]:
    found = cast("dict[str, Any]", json.loads(remote.schema))
    kept = {key: value for key, value in found.items() if key not in ("$schema", "title")}
    return {"properties": {}, **kept, "type": "object"}


def _unfit(remote: RemoteTool) -> str:
    try:
        schema: object = json.loads(remote.schema)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        return "its schema is not a JSON object"
    properties = cast("dict[str, object]", schema).get("properties", {})
    if not isinstance(properties, dict):
        return "the properties of its schema are not an object"
    if len(remote.schema) > _SCHEMA:
        return f"its schema has {len(remote.schema):,} characters, at most {_SCHEMA:,} are sent"
    if not _UNUSUAL.sub("", remote.name):
        return f"its name is {remote.name!r:.60}"
    return ""


def _arguments(name: str, remote: RemoteTool) -> type[Struct]:
    """The parameters as code that a model writes may call them; the server checks them."""
    schema = _schema(remote)
    fields = [
        (each, Any, None)
        for each in cast("dict[str, object]", schema["properties"])
        if each.isidentifier() and not iskeyword(each) and not each.startswith("_")
    ]
    return msgspec.defstruct(
        _UNUSUAL.sub("_", name).replace("-", "_"), fields, kw_only=True
    )
