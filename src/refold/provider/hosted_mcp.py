"""MCP servers that a provider connects to itself: how two wires say it, and what comes back.

Anthropic's Messages API and OpenAI's Responses API take the addresses of MCP servers, call their
tools while they answer, and put each call with its result into the answer. Both want to read
those parts again, unchanged, with the next request; a server that is not in that request any more
is not named to them either: its calls become words. Pure. The wires import it only for such
servers, `app.remote_servers` says which servers these are, and `engine.calls` records the calls.

https://platform.claude.com/docs/en/agents-and-tools/mcp-connector
https://platform.openai.com/docs/guides/tools-connectors-mcp
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

BETA = {"anthropic-beta": "mcp-client-2025-11-20"}
LISTING = "list_tools"  # how a list of tools that could not be had is shown: as a call
_KEY = "hosted"  # what we keep is an object with the name of the server here
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 128


def anthropic_fields(hosted: Sequence[HostedServer]) -> dict[str, Any]:
    """The field of the request with the servers. `anthropic_toolsets` goes among the tools."""
    return {"mcp_servers": [_anthropic_server(each) for each in hosted]}


def anthropic_toolsets(hosted: Sequence[HostedServer]) -> list[dict[str, Any]]:
    return [{"type": "mcp_toolset", "mcp_server_name": each.name} for each in hosted]


def openai_tools(hosted: Sequence[HostedServer]) -> list[dict[str, Any]]:
    """The servers as tools. The user has agreed to their calls in the settings."""
    return [_openai_tool(each) for each in hosted]


def recalled(
    data: Mapping[str, object], hosting: Collection[str]
) -> tuple[list[dict[str, Any]], str] | None:
    """What we kept of a call: the parts as they came, or words about it, if `hosting` does
    not name its server. None: `data` is something else.
    """
    server, items = data.get(_KEY), data.get("items")
    if not isinstance(server, str) or not isinstance(items, list):
        return None
    every = cast("list[object]", items)
    found = [cast("dict[str, Any]", each) for each in every if isinstance(each, dict)]
    return (found, "") if server in hosting else ([], _in_words(server, found))


def anthropic_result(
    use: Mapping[str, Any], content: Any, keeping: str, *, failed: bool
) -> HostedResult:
    """A call has ended. `use` is the block that began it, with its whole input."""
    result: dict[str, Any] = {
        "type": "mcp_tool_result", "tool_use_id": use["id"], "is_error": failed,
        "content": content if isinstance(content, str | list) else "",
    }  # fmt: skip
    kept = _kept(str(use["server_name"]), [dict(use), result])
    arguments = msgspec.json.encode(use["input"]).decode()
    return HostedResult(use["id"], arguments, _text(content), failed, keeping, kept)


def openai_began(item: Mapping[str, Any]) -> tuple[Delta, ...]:
    """An item of the answer has begun: for a call, that it was made."""
    if item.get("type") != "mcp_call":
        return ()
    return (HostedCall(*_openai_names(item, str(item.get("name") or ""))),)


def openai_ended(item: Mapping[str, Any], keeping: str) -> tuple[Delta, ...]:
    """The complete item. A list of tools is kept, so that the next request need not ask again."""
    server, error = str(item.get("server_label") or ""), item.get("error")
    if item.get("type") == "mcp_call":
        output = item.get("output")
        failed = error is not None or item.get("status") in ("failed", "incomplete")
        text = output if isinstance(output, str) and output else _error(error)
        id_, arguments = str(item.get("id") or ""), str(item.get("arguments") or "")
        return (
            HostedResult(
                id_, arguments, text, failed, keeping, _kept(server, [dict(item)])
            ),
        )
    if error is None:
        return (ThinkingDelta("", keeping, _kept(server, [dict(item)])),)
    id_, name = _openai_names(item, LISTING)
    return HostedCall(id_, name), HostedResult(id_, "", _error(error), failed=True)


def tool_name(server: str, tool: str) -> str:
    """As the tools of servers that refold connects are named."""
    return _OTHER.sub("_", f"mcp__{server}__{tool}")[:_LONGEST_NAME]


def _anthropic_server(server: HostedServer) -> dict[str, Any]:
    token = {"authorization_token": server.token} if server.token else {}
    return {"type": "url", "name": server.name, "url": server.url, **token}


def _openai_tool(server: HostedServer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "mcp", "server_label": server.name, "server_url": server.url,
        "require_approval": "never",
    }  # fmt: skip
    if server.token:
        found["authorization"] = server.token
    if server.headers:
        found["headers"] = dict(server.headers)
    return found


def _openai_names(item: Mapping[str, Any], tool: str) -> tuple[str, str]:
    return str(item.get("id") or ""), tool_name(str(item.get("server_label") or ""), tool)


def _kept(server: str, items: list[dict[str, Any]]) -> Raw:
    try:
        return Raw(msgspec.json.encode({_KEY: server, "items": items}))
    except (UnicodeEncodeError, OverflowError):  # half a character in a result
        return Raw(b"null")


def _in_words(server: str, items: Sequence[Mapping[str, Any]]) -> str:
    match items:
        case [{"type": "mcp_tool_use", **use}, {"type": "mcp_tool_result", **result}]:
            arguments = msgspec.json.encode(use.get("input")).decode()
            return _told(server, use.get("name"), arguments, _text(result.get("content")))
        case [{"type": "mcp_call", **call}]:
            text = call.get("output") or _error(call.get("error"))
            return _told(server, call.get("name"), call.get("arguments"), text)
        case _:
            return ""  # a list of tools


def _told(server: str, tool: object, arguments: object, result: object) -> str:
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
    for each in content:
        match each:
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
