"""Makes refold tools, named `mcp__server__tool`, from the tools that MCP servers offer.

No such tool counts as read-only, because a server's hints ("read only") are not trusted. A
description is text of another program: its length is limited, and invisible characters are
escaped. If two tools get the same name, both are refused. `connections` makes the calls.
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
_MAX_NAME_CHARS = 64  # that providers accept
_MAX_DESCRIPTION_CHARS = 2_048  # the length of a description
_MAX_SCHEMA_CHARS = 20_000  # the length of one schema
_MAX_SCHEMA_DEPTH = 64  # nested objects and lists in a schema
_MAX_SHOWN_REFERENCE_CHARS = 100  # in an error message
_MAX_LABEL_CHARS = 1_000  # the length of a label
_UNUSUAL_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")

Call = Callable[[str, str, Mapping[str, object], Context, Complete], Awaitable[Reply]]


class McpTool(Tool, frozen=True):
    """A tool of an MCP server. The server checks the arguments, which are one JSON object."""

    def parse(self, raw: bytes | Raw) -> dict[str, object]:
        return {"arguments": arguments_object(raw)}

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters in the schema of the tool."""
        schema: dict[str, Any] = msgspec.json.decode(self.signature().schema)
        return tuple(schema["properties"])

    def subject_of(self, arguments: Mapping[str, object]) -> str:
        """Return the text that permission rules are matched with: all arguments as JSON."""
        return json.dumps(arguments["arguments"], ensure_ascii=False)

    def label(self, arguments: Mapping[str, object]) -> str:
        return super().label(arguments)[:_MAX_LABEL_CHARS]


class ServerTools(Struct, frozen=True):
    """The tools of all MCP servers, and a sentence about each tool that was refused."""

    tools: tuple[McpTool, ...] = ()
    refused: tuple[str, ...] = ()


def as_tools(
    offers: Mapping[str, Sequence[RemoteTool]],
    call: Call,
    is_confined: Callable[[str], bool] = lambda _: False,
) -> ServerTools:
    """Return a tool for each tool that a server offers, and sentences about the refused ones.

    `offers` maps the name of a server to its tools, and `call` calls a tool. `is_confined`
    returns whether the sandbox prevents the server of this name from changing the workspace.
    """
    tools, refused = list[McpTool](), list[str]()
    for server in sorted(offers):
        offers_by_name = dict[str, list[RemoteTool]]()
        for offer in offers[server]:
            offers_by_name.setdefault(tool_name(server, offer.name), []).append(offer)
        for name, (first, *others) in offers_by_name.items():
            if others:
                names = " and ".join(sorted(repr(offer.name) for offer in (first, *others)))
                refused.append(
                    f"the MCP server {server} has the tools {names}, which would both be "
                    f"{name}: neither is used"
                )
                continue
            try:
                made_tool = _to_tool(server, name, first, call)
            except BadInput as error:
                refused.append(f"the tool {name} is not used: {error}")
                continue
            confined = partial(is_confined, server)
            tools.append(structs.replace(made_tool, is_confined=confined))
    return ServerTools(tuple(tools), tuple(refused))


def tool_name(server: str, remote: str) -> str:
    """Return refold's name of a server's tool, which the model and permission rules use.

    A name that is too long is cut, and a hash is added at its end.
    """
    name = f"{NAME_PREFIX}{server}__{_UNUSUAL_CHARACTERS.sub('_', remote)}"
    if len(name) <= _MAX_NAME_CHARS:
        return name
    digest = sha256(remote.encode(errors="surrogatepass")).hexdigest()[:8]
    suffix = f"_{digest}"
    return name[: _MAX_NAME_CHARS - len(suffix)] + suffix


def resource_tool(read_resource: Callable[[str, str, Context], Awaitable[Reply]]) -> Tool:
    """Return the tool that reads a resource, which messages name as `@server:uri`."""

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
    """Return how many characters these tools add to each model request."""
    return sum(
        len(t.name) + len(t.description) + len(bytes(t.signature().schema)) for t in tools
    )


def _to_tool(server: str, name: str, remote: RemoteTool, call: Call) -> McpTool:
    """Return the tool `name`, which calls the tool `remote` of a server.

    Raises `BadInput` for a schema that cannot be sent to a model.
    """

    async def run(
        *, arguments: Mapping[str, object], context: Context, complete: Complete
    ) -> Reply:
        return await call(server, remote.name, arguments, context, complete)

    about = shorten(escape_outside(remote.description), _MAX_DESCRIPTION_CHARS)
    signature = Signature(
        _Arguments,
        _parameters(remote),
        needs=("complete",),
        context="context",
        subject="arguments",
    )
    return McpTool(
        name=name,
        description=f"[MCP server {server}] {about}",
        effect=Effect.RUN,
        run=run,
        signature=lambda: signature,
        outside=True,
    )


class _Arguments(Struct, frozen=True):
    arguments: dict[str, Any]


def _parameters(remote: RemoteTool) -> Raw:
    """Return the tool's schema in a form that all model providers accept.

    Raises `BadInput` if there is no such form.
    """
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
    """Return a part of a schema with invisible characters in its texts escaped.

    Raises `BadInput` if a property name has an invisible character: the model would use the
    escaped name in a call, and the server does not know it.
    """
    match part:
        case str():
            return escape_outside(part)
        case list():
            return [_escape(item) for item in cast("list[object]", part)]
        case dict():
            names = cast("dict[str, object]", part)
            for name in names:
                if (escaped := escape_outside(name)) != name:
                    raise BadInput(
                        f"its schema has the name {escaped[:100]!r}, which holds "
                        "characters that cannot be seen"
                    )
            return {name: _escape(below) for name, below in names.items()}
        case _:
            return part


def _check_references(schema: Mapping[str, Any]) -> None:
    """Raise `BadInput` if a `$ref` in the schema has no target, or the nesting is too deep.

    A model provider would refuse a request with such a schema.
    """
    parts: list[object] = [schema]  # all parts at one level of the schema
    level = 0
    while parts:
        if level > _MAX_SCHEMA_DEPTH:
            raise BadInput(
                f"its schema is nested more than {_MAX_SCHEMA_DEPTH} levels deep"
            )
        for reference in map(_reference, parts):
            if reference and not _leads_somewhere(reference, schema):
                shown = reference[:_MAX_SHOWN_REFERENCE_CHARS]
                raise BadInput(f"its schema refers to {shown!r}, which leads to nothing")
        parts = [below for part in parts for below in _members(part).values()]
        level += 1


def _members(part: object) -> Mapping[str, object]:
    """Return the values in an object or list by name or index; {} for any other value."""
    if isinstance(part, dict):
        return cast("dict[str, object]", part)
    items = cast("list[object]", part) if isinstance(part, list) else []
    return {str(index): item for index, item in enumerate(items)}


def _reference(part: object) -> str:
    """Return the `$ref` of a part of a schema; "" if it has none."""
    value = _members(part).get("$ref")
    return value if isinstance(value, str) else ""


def _leads_somewhere(reference: str, schema: Mapping[str, Any]) -> bool:
    """Return whether a `$ref` has a target in `schema`, if necessary through other `$ref`s."""
    followed = set[str]()  # a chain of references can end where it began
    while reference.startswith("#") and reference not in followed:
        followed.add(reference)
        part: object = schema
        for name in unquote(reference).split("/")[1:]:  # without the #
            part = _members(part).get(name.replace("~1", "/").replace("~0", "~"))
        reference = _reference(part)
        if not reference:
            return part is not None
    return False
