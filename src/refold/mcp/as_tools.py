"""Makes tools of what servers offer: `mcp__server__tool`, which always count as run, never
as read-only.

Hints of a server ("read only") decide nothing. A description is another program's text: its
length is bounded, invisible characters are written out. Two tools with the same name are
both refused, in whichever order they came. `connections` makes the calls.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, cast
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Raw, Struct, structs

from refold.errors import BadInput
from refold.mcp.manifests import RemoteTool
from refold.mcp.portable_schema import to_portable
from refold.tools.contract import (
    Complete,
    Context,
    Reply,
    Signature,
    Tool,
    arguments_object,
    tool,
)
from refold.values.printable_names import shorten
from refold.values.text import escape_outside
from refold.values.tools import Effect

NAME_PREFIX = "mcp__"
_MAX_NAME_CHARS = 64  # that providers take
_MAX_DESCRIPTION_CHARS = 2_048  # characters
_MAX_SCHEMA_CHARS = 20_000  # characters of one schema
_MAX_SCHEMA_DEPTH = 64  # levels of objects and lists in it
_MAX_LABEL_CHARS = 1_000  # characters
_UNUSUAL_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")

Call = Callable[[str, str, Mapping[str, object], Context, Complete], Awaitable[Reply]]


class McpTool(Tool, frozen=True):
    """A tool of a server. Its arguments are one JSON object, which the server checks."""

    def parse(self, raw: bytes | Raw) -> dict[str, object]:
        return {"arguments": arguments_object(raw)}

    @property
    def parameters(self) -> tuple[str, ...]:
        schema: dict[str, Any] = msgspec.json.decode(self.signature().schema)
        return tuple(schema["properties"])

    def subject_of(self, arguments: Mapping[str, object]) -> str:
        """Return all arguments: a rule could not match what is left out."""
        return json.dumps(arguments["arguments"], ensure_ascii=False)

    def label(self, arguments: Mapping[str, object]) -> str:
        return super().label(arguments)[:_MAX_LABEL_CHARS]


class ServerTools(Struct, frozen=True):
    """The tools of all servers, and sentences about those that are refused."""

    tools: tuple[McpTool, ...] = ()
    refused: tuple[str, ...] = ()


def as_tools(
    offers: Mapping[str, Sequence[RemoteTool]],
    call: Call,
    is_confined: Callable[[str], bool] = lambda _: False,
) -> ServerTools:
    """Make the tools. `offers` has the tools of each server, by its name.

    `is_confined` returns whether the sandbox of a server keeps it from changing the workspace.
    """
    tools, refused = list[McpTool](), list[str]()
    for server in sorted(offers):
        named = dict[str, list[RemoteTool]]()
        for offer in offers[server]:
            named.setdefault(tool_name(server, offer.name), []).append(offer)
        for name, several in named.items():
            if len(several) > 1:
                spelled = " and ".join(sorted(repr(offer.name) for offer in several))
                refused.append(
                    f"the MCP server {server} has the tools {spelled}, which would both be "
                    f"{name}: neither is used"
                )
            else:
                try:
                    made_tool = _tool(server, name, several[0], call)
                    confined = partial(is_confined, server)
                    tools.append(structs.replace(made_tool, is_confined=confined))
                except BadInput as error:
                    refused.append(f"the tool {name} is not used: {error}")
    return ServerTools(tuple(tools), tuple(refused))


def tool_name(server: str, remote: str) -> str:
    """Return the name of a tool for model and rules; a long one ends with its hash."""
    name = f"{NAME_PREFIX}{server}__{_UNUSUAL_CHARACTERS.sub('_', remote)}"
    if len(name) <= _MAX_NAME_CHARS:
        return name
    mark = sha256(remote.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{name[: _MAX_NAME_CHARS - 9]}_{mark}"


def resource_tool(read_resource: Callable[[str, str, Context], Awaitable[Reply]]) -> Tool:
    """Return the tool that reads resources, which messages name as `@server:uri`."""

    @tool(Effect.NET, subject="uri")
    async def mcp__read_resource(
        server: Annotated[str, Meta(description="before the colon")],
        uri: Annotated[str, Meta(description="after it, as note://one")],
        *,
        context: Context,
    ) -> Reply:
        """Read a resource of an MCP server, which a message names as @server:uri."""
        return await read_resource(server, uri, context)

    return mcp__read_resource


def tool_characters(tools: Iterable[Tool]) -> int:
    """Return how many characters these tools add to each request."""
    return sum(
        len(t.name) + len(t.description) + len(bytes(t.signature().schema)) for t in tools
    )


def _tool(server: str, name: str, remote: RemoteTool, call: Call) -> McpTool:
    async def run(
        *, arguments: Mapping[str, object], context: Context, complete: Complete
    ) -> Reply:
        return await call(server, remote.name, arguments, context, complete)

    about = shorten(escape_outside(remote.description), _MAX_DESCRIPTION_CHARS)
    signature = Signature(
        _Arguments, _parameters(remote), ("complete",), "context", "arguments"
    )
    return McpTool(
        name,
        f"[MCP server {server}] {about}",
        Effect.RUN,
        run,
        lambda: signature,
        outside=True,
    )


class _Arguments(Struct, frozen=True):
    arguments: dict[str, Any]


def _parameters(remote: RemoteTool) -> Raw:
    """Return the schema as providers accept it. Raises `BadInput` if it cannot be sent."""
    if len(remote.schema) > _MAX_SCHEMA_CHARS:
        raise BadInput(
            f"its schema has {len(remote.schema):,} characters, at most {_MAX_SCHEMA_CHARS:,} are sent"
        )
    try:
        document = msgspec.json.decode(remote.schema, type=dict[str, Any] | None)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInput("its schema is not a JSON object") from error
    schema = document or dict[str, Any]()
    if (kind := schema.get("type", "object")) != "object":
        raise BadInput(
            f"its schema is that of {json.dumps(kind)[:100]}, and not of an object"
        )
    _check_references(schema)
    result = to_portable(_escape(schema))
    _check_references(result)  # a reference may name a part that is not sent
    return Raw(msgspec.json.encode(result))


def _escape(part: Any) -> Any:
    """Return a part of a schema with all its texts escaped as users see them.

    Raises `BadInput` for a name that escaping changes: the model could not call by it.
    """
    match part:
        case str():
            return escape_outside(part)
        case list():
            return [_escape(item) for item in cast("list[object]", part)]
        case dict():
            names = cast("dict[str, object]", part)
            if bad := next((name for name in names if escape_outside(name) != name), ""):
                raise BadInput(
                    f"its schema has the name {escape_outside(bad)[:100]!r}, which holds "
                    "characters that cannot be seen"
                )
            return {name: _escape(below) for name, below in names.items()}
        case _:
            return part


def _check_references(schema: Mapping[str, Any]) -> None:
    """Raise `BadInput` for references for which providers refuse the whole request."""
    parts, level = list[object]([schema]), 0
    while parts:
        if level > _MAX_SCHEMA_DEPTH:
            raise BadInput(
                f"its schema is nested more than {_MAX_SCHEMA_DEPTH} levels deep"
            )
        for reference in map(_reference, parts):
            if reference and not _leads_somewhere(reference, schema):
                raise BadInput(
                    f"its schema refers to {reference[:100]!r}, which leads to nothing"
                )
        parts = [below for part in parts for below in _members(part).values()]
        level += 1


def _members(part: object) -> Mapping[str, object]:
    if isinstance(part, dict):
        return cast("dict[str, object]", part)
    items = cast("list[object]", part) if isinstance(part, list) else []
    return {str(index): item for index, item in enumerate(items)}


def _reference(part: object) -> str:
    value = _members(part).get("$ref")
    return value if isinstance(value, str) else ""


def _leads_somewhere(reference: str, schema: Mapping[str, Any]) -> bool:
    """Return True if the reference ends at a part of the schema that is not a reference."""
    known = set[str]()
    while reference.startswith("#") and reference not in known:
        known.add(reference)
        part: object = schema
        for name in unquote(reference).split("/")[1:]:
            part = _members(part).get(name.replace("~1", "/").replace("~0", "~"))
        if not (reference := _reference(part)):
            return part is not None
    return False
