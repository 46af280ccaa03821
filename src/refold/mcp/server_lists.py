"""Reads what a server offers: its tools, prompts and resources, page by page, within limits, and
values for their arguments. Listens for changes of its lists.

`manifests` remembers it, and `connection` reads it again when it has changed.
"""

import json
from collections.abc import Awaitable, Callable
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

MAX_ENTRIES = 1_000  # of a list
_MAX_PAGES = 50
_LISTEN_PAUSE = 2.0  # seconds before listening: a session may end at once


async def read_lists(client: Client, report: Callable[[str], None]) -> ServerListing:
    """Read all lists of a server, page by page. `report` is called with each list that is cut."""

    async def pages(ask: Callable[..., Awaitable[Any]], key: str) -> list[Any]:
        entries, cursor = list[Any](), None
        for _ in range(_MAX_PAGES):
            try:
                page = await ask(cursor=cursor, cache_mode="refresh")
            except ValidationError:
                if key == "tools":  # without these a server is of no use
                    raise
                report(
                    f"its {key.replace('_', ' ')} are left out: their list cannot be read"
                )
                return entries
            entries += getattr(page, key)
            cursor = page.next_cursor
            if not cursor or len(entries) >= MAX_ENTRIES:
                break
        if cursor or len(entries) > MAX_ENTRIES:
            report(
                f"of its {key} only the first {min(len(entries), MAX_ENTRIES):,} are used"
            )
        return entries[:MAX_ENTRIES]

    can, info = client.server_capabilities, client.server_info

    async def list_templates() -> list[Any]:
        try:
            return await pages(client.list_resource_templates, "resource_templates")
        except (MCPError, ValidationError):  # many servers with resources have no such list
            return []

    tools = [
        RemoteTool(
            t.name,
            t.description or "",
            json.dumps(schema_as_sent(t.input_schema)),
            t.execution is not None
            and t.execution.task_support == server_tasks.TASK_REQUIRED,
        )
        for t in (await pages(client.list_tools, "tools") if can.tools else [])
    ]
    prompts = [
        RemotePrompt(
            p.name,
            p.description or "",
            tuple(a.name for a in p.arguments or ()),
            tuple(a.name for a in p.arguments or () if a.required),
        )
        for p in (await pages(client.list_prompts, "prompts") if can.prompts else [])
    ]
    resources = [
        RemoteResource(str(r.uri), r.name, r.mime_type or "")
        for r in (await pages(client.list_resources, "resources") if can.resources else [])
    ]
    templates = [
        RemoteResource(t.uri_template, t.name, t.mime_type or "")
        for t in (await list_templates() if can.resources else [])
    ]
    title = f"{info.name} {info.version}" if info else ""
    lists = tuple(tools), tuple(prompts), tuple(resources)
    return ServerListing(*lists, title[:200], tuple(templates))


async def complete(client: Client, argument: RemoteArgument) -> tuple[str, ...]:
    """Return values for an argument; none if the server completes nothing."""
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
    except (MCPError, ValidationError):  # they are only offered
        return ()
    return tuple(result.completion.values)


async def listen_for_changes(
    client: Client, connection_end: ConnectionEnd, log: Callable[[Level, str], None]
) -> None:
    """Ask a server of the newest protocol for changes of its lists, which the connection's message
    handler gets.

    Servers of older protocols send them without being asked.
    """
    can = client.server_capabilities
    tools, prompts, resources = (
        part is not None and bool(part.list_changed)
        for part in (can.tools, can.prompts, can.resources)
    )
    if (
        not (tools or prompts or resources)
        or client.protocol_version not in MODERN_PROTOCOL_VERSIONS
    ):
        return
    while not connection_end.ended:
        await anyio.sleep(_LISTEN_PAUSE)
        try:
            async with client.listen(
                tools_list_changed=tools,
                prompts_list_changed=prompts,
                resources_list_changed=resources,
            ) as changes:
                connection_end.mark_changed()  # they may have changed before
                async for _ in changes:
                    pass
        except (MCPError, TimeoutError) as error:
            log("info", f"does not report changes: {transports.reason(error)}")
            return
        except SubscriptionLost as error:
            log("info", f"reports changes no longer: {error}")
