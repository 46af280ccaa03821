"""Reads the lists of tools, prompts and resources of a server, and asks it to report changes.

Lists are read page by page, within limits. The values that a server suggests for an argument
are requested one argument at a time. `manifests` stores the lists, and `connection` reads them
again when they have changed.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from refold.mcp import server_tasks, transports
from refold.mcp.answer_repair import schema_as_sent
from refold.mcp.manifests import (
    RemoteArgument,
    RemotePrompt,
    RemoteResource,
    RemoteTool,
    ServerListing,
)
from refold.mcp.transports import ConnectionEnd
from refold.values.log_level import Level

MAX_ENTRIES = 1_000  # in a list
_MAX_PAGES = 50
_MAX_TITLE_CHARS = 200
_LISTEN_PAUSE = 2.0  # seconds before listening, because a session may end immediately


async def read_lists(client: Client, report: Callable[[str], None]) -> ServerListing:
    """Read all lists of a server. `report` gets a sentence about each incomplete list."""
    capabilities, info = client.server_capabilities, client.server_info
    tools, prompts = list[Any](), list[Any]()
    resources, templates = list[Any](), list[Any]()
    if capabilities.tools:
        tools = await _read_pages(client.list_tools, "tools", report)
    if capabilities.prompts:
        prompts = await _read_pages(client.list_prompts, "prompts", report)
    if capabilities.resources:
        resources = await _read_pages(client.list_resources, "resources", report)
        # Many servers with resources refuse to list templates.
        with suppress(MCPError, ValidationError):
            templates = await _read_pages(
                client.list_resource_templates, "resource_templates", report
            )
    title = f"{info.name} {info.version}" if info else ""
    return ServerListing(
        tools=tuple(map(_to_tool, tools)),
        prompts=tuple(map(_to_prompt, prompts)),
        resources=tuple(
            RemoteResource(uri=str(r.uri), name=r.name, kind=r.mime_type or "")
            for r in resources
        ),
        title=title[:_MAX_TITLE_CHARS],
        templates=tuple(
            RemoteResource(uri=t.uri_template, name=t.name, kind=t.mime_type or "")
            for t in templates
        ),
    )


async def _read_pages(
    ask: Callable[..., Awaitable[Any]], key: str, report: Callable[[str], None]
) -> list[Any]:
    """Return the entries of all pages, up to `MAX_ENTRIES`. `ask` requests one page.

    An invalid page of tools raises `ValidationError`; any other list ends at an invalid
    page.
    """
    entries, cursor = list[Any](), None
    for _ in range(_MAX_PAGES):
        try:
            page = await ask(cursor=cursor, cache_mode="refresh")
        except ValidationError:
            if key == "tools":  # a server is useless without its tools
                raise
            report(f"its {key.replace('_', ' ')} are left out: their list cannot be read")
            return entries
        entries += getattr(page, key)
        cursor = page.next_cursor
        if not cursor or len(entries) >= MAX_ENTRIES:
            break
    if cursor or len(entries) > MAX_ENTRIES:
        report(f"of its {key} only the first {min(len(entries), MAX_ENTRIES):,} are used")
    return entries[:MAX_ENTRIES]


def _to_tool(tool: types.Tool) -> RemoteTool:
    execution = tool.execution
    return RemoteTool(
        name=tool.name,
        description=tool.description or "",
        schema=json.dumps(schema_as_sent(tool.input_schema)),
        as_task=execution is not None
        and execution.task_support == server_tasks.TASK_REQUIRED,
    )


def _to_prompt(prompt: types.Prompt) -> RemotePrompt:
    arguments = prompt.arguments or ()
    return RemotePrompt(
        name=prompt.name,
        description=prompt.description or "",
        arguments=tuple(argument.name for argument in arguments),
        required=tuple(argument.name for argument in arguments if argument.required),
    )


async def complete(client: Client, argument: RemoteArgument) -> tuple[str, ...]:
    """Return the values that the server suggests for an argument; () if it suggests none."""
    if client.server_capabilities.completions is None:
        return ()
    ref = (
        types.ResourceTemplateReference(uri=argument.of)
        if argument.template
        else types.PromptReference(name=argument.of)
    )
    typed = {"name": argument.name, "value": argument.value}
    try:
        result = await client.complete(ref, typed, dict(argument.before) or None)
    except (MCPError, ValidationError):  # completions are optional
        return ()
    return tuple(result.completion.values)


async def listen_for_changes(
    client: Client, connection_end: ConnectionEnd, log: Callable[[Level, str], None]
) -> None:
    """Ask a server of the newest protocol to report when its lists change.

    This runs until the connection ends. The reports arrive at the connection's message handler.
    Servers of older protocols report changes without a request.
    """
    capabilities = client.server_capabilities
    tools, prompts, resources = (
        part is not None and bool(part.list_changed)
        for part in (capabilities.tools, capabilities.prompts, capabilities.resources)
    )
    can_report = tools or prompts or resources
    is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    if not (can_report and is_modern):
        return
    while not connection_end.ended:
        await anyio.sleep(_LISTEN_PAUSE)
        try:
            async with client.listen(
                tools_list_changed=tools,
                prompts_list_changed=prompts,
                resources_list_changed=resources,
            ) as changes:
                # they may have changed before listening began
                connection_end.mark_changed()
                async for _ in changes:
                    pass
        except (MCPError, TimeoutError) as error:
            log("info", f"does not report changes: {transports.reason(error)}")
            return
        except SubscriptionLost as error:
            log("info", f"reports changes no longer: {error}")
