"""MCP servers that a provider connects to itself: how two wires say it, and what comes back.

Anthropic's Messages API and OpenAI's Responses API take the addresses of MCP servers, call their
tools while they answer, and put each call with its result into the answer. Both want to read
those parts again, unchanged, with the next request; a server that is not in that request any more
is not named to them either: its calls become words. Pure. The wires import it only for such
servers, `app.remote_servers` says which servers these are, and `engine.calls` records the calls.

https://platform.claude.com/docs/en/agents-and-tools/mcp-connector
https://platform.openai.com/docs/guides/tools-connectors-mcp

Such a call is over when refold learns of it: no rule, mode, hook or question can stop
it. So only the user's own file can ask for it, and servers are left out in plan mode, in
`rules-only`, and where a rule or a hook is about their tools.
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
LIST_TOOL_NAME = "list_tools"  # a failed listing of tools is shown as a call of this name
_SERVER_KEY = "hosted"  # the key of the server's name in stored data
_INVALID_CHARS_PATTERN = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARS = 128


def anthropic_fields(servers: Sequence[HostedServer]) -> dict[str, Any]:
    """The request field with the servers. `anthropic_toolsets` goes among the tools."""
    return {"mcp_servers": [_anthropic_server(server) for server in servers]}


def anthropic_toolsets(servers: Sequence[HostedServer]) -> list[dict[str, Any]]:
    return [{"type": "mcp_toolset", "mcp_server_name": server.name} for server in servers]


def openai_tools(servers: Sequence[HostedServer]) -> list[dict[str, Any]]:
    """The servers as tools. The user has agreed to their calls in the settings."""
    return [_openai_tool(server) for server in servers]


def restore_parts(
    data: Mapping[str, object], mcp_servers: Collection[str]
) -> tuple[list[dict[str, Any]], str] | None:
    """The stored parts of a call, unchanged; or a description, if `mcp_servers` lacks its
    server. None: `data` is not of a call.
    """
    server, items = data.get(_SERVER_KEY), data.get("items")
    if not isinstance(server, str) or not isinstance(items, list):
        return None
    every = cast("list[object]", items)
    blocks = [cast("dict[str, Any]", item) for item in every if isinstance(item, dict)]
    return (blocks, "") if server in mcp_servers else ([], _describe_calls(server, blocks))


def anthropic_result(
    use: Mapping[str, Any], content: Any, own_wire: str, *, failed: bool
) -> HostedResult:
    """The result of a call. `use` is the block that began it, with its whole input."""
    result: dict[str, Any] = {
        "type": "mcp_tool_result", "tool_use_id": use["id"], "is_error": failed,
        "content": content if isinstance(content, str | list) else "",
    }  # fmt: skip
    stored = _encode_items(str(use["server_name"]), [dict(use), result])
    arguments = msgspec.json.encode(use["input"]).decode()
    return HostedResult(use["id"], arguments, _text(content), failed, own_wire, stored)


def begin_openai_item(item: Mapping[str, Any]) -> tuple[Delta, ...]:
    """The deltas at the beginning of an item: for a call, that it was made."""
    if item.get("type") != "mcp_call":
        return ()
    return (HostedCall(*_openai_names(item, str(item.get("name") or ""))),)


def end_openai_item(item: Mapping[str, Any], own_wire: str) -> tuple[Delta, ...]:
    """The deltas of a complete item. A list of tools is stored for the next request."""
    server, error = str(item.get("server_label") or ""), item.get("error")
    if item.get("type") == "mcp_call":
        output = item.get("output")
        failed = error is not None or item.get("status") in ("failed", "incomplete")
        text = output if isinstance(output, str) and output else _error(error)
        id_, arguments = str(item.get("id") or ""), str(item.get("arguments") or "")
        return (
            HostedResult(
                id_, arguments, text, failed, own_wire, _encode_items(server, [dict(item)])
            ),
        )
    if error is None:
        return (ThinkingDelta("", own_wire, _encode_items(server, [dict(item)])),)
    id_, name = _openai_names(item, LIST_TOOL_NAME)
    return HostedCall(id_, name), HostedResult(id_, "", _error(error), failed=True)


def tool_name(server: str, tool: str) -> str:
    """The name of a tool, in the form used for servers that refold connects."""
    return _INVALID_CHARS_PATTERN.sub("_", f"mcp__{server}__{tool}")[:_MAX_NAME_CHARS]


def _anthropic_server(server: HostedServer) -> dict[str, Any]:
    token = {"authorization_token": server.token} if server.token else {}
    return {"type": "url", "name": server.name, "url": server.url, **token}


def _openai_tool(server: HostedServer) -> dict[str, Any]:
    tool: dict[str, Any] = {
        "type": "mcp", "server_label": server.name, "server_url": server.url,
        "require_approval": "never",
    }  # fmt: skip
    if server.token:
        tool["authorization"] = server.token
    if server.headers:
        tool["headers"] = dict(server.headers)
    return tool


def _openai_names(item: Mapping[str, Any], tool: str) -> tuple[str, str]:
    return str(item.get("id") or ""), tool_name(str(item.get("server_label") or ""), tool)


def _encode_items(server: str, items: list[dict[str, Any]]) -> Raw:
    try:
        return Raw(msgspec.json.encode({_SERVER_KEY: server, "items": items}))
    except (UnicodeEncodeError, OverflowError):  # half a character in a result
        return Raw(b"null")


def _describe_calls(server: str, items: Sequence[Mapping[str, Any]]) -> str:
    match items:
        case [{"type": "mcp_tool_use", **use}, {"type": "mcp_tool_result", **result}]:
            arguments = msgspec.json.encode(use.get("input")).decode()
            return _describe_call(
                server, use.get("name"), arguments, _text(result.get("content"))
            )
        case [{"type": "mcp_call", **call}]:
            text = call.get("output") or _error(call.get("error"))
            return _describe_call(server, call.get("name"), call.get("arguments"), text)
        case _:
            return ""  # a list of tools


def _describe_call(server: str, tool: object, arguments: object, result: object) -> str:
    called = f"The tool {tool} of the MCP server {server} was called with {arguments}."
    return f"({called} It returned: {result})"


def _text(content: Any) -> str:
    match content:
        case str():
            return content
        case list():
            return "\n".join(_texts(cast("list[Any]", content)))
        case _:
            return ""


def _texts(content: list[Any]) -> Iterator[str]:
    for block in content:
        match block:
            case {"text": str(text)}:
                yield text
            case _:
                continue


def _error(error: Any) -> str:
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
