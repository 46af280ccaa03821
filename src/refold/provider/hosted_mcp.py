"""Requests and parses the calls of MCP servers that a provider connects to itself.

Anthropic's Messages API and OpenAI's Responses API take the addresses of MCP servers, call
their tools while they respond, and put each call with its result into the response. With the
next request they want these parts back, unchanged. If that request no longer names the server,
its earlier calls are described in words. The functions are pure. The wires import this module
only if a request has hosted servers; `app.remote_servers` chooses them, and `engine.calls`
records the calls.

https://platform.claude.com/docs/en/agents-and-tools/mcp-connector
https://platform.openai.com/docs/guides/tools-connectors-mcp

A call is over when refold receives it, so no rule, mode, hook or question can stop it.
Therefore only the user's own settings file can enable such servers, and they are left out in
plan mode, in `rules-only`, and if a rule or a hook is about their tools.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from refold.provider.port import (
    Delta,
    HostedCall,
    HostedResult,
    HostedServer,
    ThinkingDelta,
)

BETA_HEADER = {"anthropic-beta": "mcp-client-2025-11-20"}
# the name of the call that represents a failed listing of tools
LIST_TOOL_NAME = "list_tools"
_SERVER_KEY = "hosted"  # the key of the server's name in stored data
_INVALID_CHARS_PATTERN = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARS = 128


def anthropic_fields(servers: Sequence[HostedServer]) -> dict[str, Any]:
    """Return the request fields that name the servers.

    The request's tools must also contain the result of `anthropic_toolsets`.
    """
    return {"mcp_servers": [_anthropic_server(server) for server in servers]}


def anthropic_toolsets(servers: Sequence[HostedServer]) -> list[dict[str, Any]]:
    return [{"type": "mcp_toolset", "mcp_server_name": server.name} for server in servers]


def openai_tools(servers: Sequence[HostedServer]) -> list[dict[str, Any]]:
    """Return the servers as entries of the request's tools.

    Their calls need no approval, because the user has agreed to them in the settings.
    """
    return [_openai_tool(server) for server in servers]


def restore_parts(
    data: Mapping[str, object], mcp_servers: Collection[str]
) -> tuple[list[dict[str, Any]], str] | None:
    """Return the stored parts of a call and "", if its server is one of `mcp_servers`.

    Otherwise return no parts and a description of the call. Return None if `data` has no call.
    """
    server, items = data.get(_SERVER_KEY), data.get("items")
    if not isinstance(server, str) or not isinstance(items, list):
        return None
    blocks = [
        cast("dict[str, Any]", item)
        for item in cast("list[object]", items)
        if isinstance(item, dict)
    ]
    if server in mcp_servers:
        return blocks, ""
    return [], _describe_calls(server, blocks)


def anthropic_result(
    use: Mapping[str, Any], content: Any, own_wire: str, *, failed: bool
) -> HostedResult:
    """Return the result of a call that the provider made. `use` is the block of that call.

    `content` is the content of the result's block, and `own_wire` the name under which both
    blocks are stored.
    """
    result: dict[str, Any] = {
        "type": "mcp_tool_result", "tool_use_id": use["id"], "is_error": failed,
        "content": content if isinstance(content, str | list) else "",
    }  # fmt: skip
    stored = _encode_items(str(use["server_name"]), [dict(use), result])
    arguments = msgspec.json.encode(use["input"]).decode()
    return HostedResult(
        use["id"], arguments, _text(content), failed=failed, wire=own_wire, data=stored
    )


def begin_openai_item(item: Mapping[str, Any]) -> tuple[Delta, ...]:
    """Return the delta that reports a call, or () if the item is not a call."""
    if item.get("type") != "mcp_call":
        return ()
    id_, name = _id_and_name(item, tool=str(item.get("name") or ""))
    return (HostedCall(id_, name),)


def end_openai_item(item: Mapping[str, Any], own_wire: str) -> tuple[Delta, ...]:
    """Return the deltas of an item that has arrived completely.

    They store the item under the name `own_wire`, so that only the same wire sends it again.
    """
    server = str(item.get("server_label") or "")
    error = item.get("error")
    if item.get("type") == "mcp_call":
        output = item.get("output")
        result = HostedResult(
            id=str(item.get("id") or ""),
            arguments=str(item.get("arguments") or ""),
            text=output if isinstance(output, str) and output else _error_text(error),
            failed=error is not None or item.get("status") in ("failed", "incomplete"),
            wire=own_wire,
            data=_encode_items(server, [dict(item)]),
        )
        return (result,)
    if error is None:  # the item is a list of the server's tools
        return (ThinkingDelta(wire=own_wire, data=_encode_items(server, [dict(item)])),)
    # The server could not list its tools, which is reported as a failed call.
    id_, name = _id_and_name(item, LIST_TOOL_NAME)
    return HostedCall(id_, name), HostedResult(id_, "", _error_text(error), failed=True)


def tool_name(server: str, tool: str) -> str:
    """Return the full name of a server's tool, as for MCP servers that refold connects to."""
    return _INVALID_CHARS_PATTERN.sub("_", f"mcp__{server}__{tool}")[:_MAX_NAME_CHARS]


def _anthropic_server(server: HostedServer) -> dict[str, Any]:
    token = {"authorization_token": server.token} if server.token else {}
    return {"type": "url", "name": server.name, "url": server.url, **token}


def _openai_tool(server: HostedServer) -> dict[str, Any]:
    """Return the tool of the Responses API that stands for all tools of an MCP server."""
    tool: dict[str, Any] = {
        "type": "mcp", "server_label": server.name, "server_url": server.url,
        "require_approval": "never",
    }  # fmt: skip
    if server.token:
        tool["authorization"] = server.token
    if server.headers:
        tool["headers"] = dict(server.headers)
    return tool


def _id_and_name(item: Mapping[str, Any], tool: str) -> tuple[str, str]:
    """Return the id of an item, and the full name of a `tool` of the item's server."""
    return str(item.get("id") or ""), tool_name(str(item.get("server_label") or ""), tool)


def _encode_items(server: str, items: list[dict[str, Any]]) -> Raw:
    """Encode items for storage. Return null if they cannot be encoded."""
    try:
        return Raw(msgspec.json.encode({_SERVER_KEY: server, "items": items}))
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair in a result
        return Raw(b"null")


def _describe_calls(server: str, items: Sequence[Mapping[str, Any]]) -> str:
    """Describe a stored call and its result in words, or return "" for a list of tools."""
    match items:
        case [{"type": "mcp_tool_use", **use}, {"type": "mcp_tool_result", **result}]:
            arguments = msgspec.json.encode(use.get("input")).decode()
            return _describe_call(
                server, use.get("name"), arguments, _text(result.get("content"))
            )
        case [{"type": "mcp_call", **call}]:
            text = call.get("output") or _error_text(call.get("error"))
            return _describe_call(server, call.get("name"), call.get("arguments"), text)
        case _:
            return ""  # the item is a list of tools


def _describe_call(server: str, tool: object, arguments: object, result: object) -> str:
    called = f"The tool {tool} of the MCP server {server} was called with {arguments}."
    return f"({called} It returned: {result})"


def _text(content: Any) -> str:
    """Return the texts in the content of a result, one on each line, or "" if it has none."""
    match content:
        case str():
            return content
        case list():
            return "\n".join(_texts(cast("list[Any]", content)))
        case _:
            return ""


def _texts(content: list[Any]) -> Iterator[str]:
    """Yield the text of each block that has one."""
    for block in content:
        match block:
            case {"text": str(text)}:
                yield text
            case _:
                continue


def _error_text(error: Any) -> str:
    """Return the message of an error, or "" if there is no error."""
    match error:
        case None:
            return ""
        case str():
            return error
        case {"message": str(message)}:
            return message
        case {"content": content}:
            return _text(content)
        case _:
            return msgspec.json.encode(error).decode()
