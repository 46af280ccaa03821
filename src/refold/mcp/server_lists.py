"""Reads the lists of tools, prompts and resources of a server, and asks it to report changes.

Lists are read page by page, within limits. The values that a server suggests for an argument
are requested one argument at a time. `manifests` stores the lists, and `connection` reads them
again when they have changed.
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

MAX_ENTRIES = 1_000  # in a list
_MAX_PAGES = 50
_LISTEN_PAUSE = 2.0  # seconds before listening, because a session may end immediately


async def read_lists(client: Client, report: Callable[[str], None]) -> ServerListing:
    """Read all lists of a server. `report` gets a sentence about each incomplete list."""

    async def read_pages(ask: Callable[..., Awaitable[Any]], key: str) -> list[Any]:
        """Return the entries of all pages, up to `MAX_ENTRIES`.

        An invalid page of tools raises `ValidationError`; an invalid page of another list ends
        it.
        """
        entries, cursor = list[Any](), None
        for _ in range(_MAX_PAGES):
            try:
                page = await ask(cursor=cursor, cache_mode="refresh")
            except ValidationError:
                if key == "tools":  # a server is useless without its tools
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
        """Return the templates of resource addresses; [] if the server refuses the request."""
        try:
            return await read_pages(client.list_resource_templates, "resource_templates")
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
        for t in (await read_pages(client.list_tools, "tools") if can.tools else [])
    ]
    prompts = [
        RemotePrompt(
            p.name,
            p.description or "",
            tuple(a.name for a in p.arguments or ()),
            tuple(a.name for a in p.arguments or () if a.required),
        )
        for p in (await read_pages(client.list_prompts, "prompts") if can.prompts else [])
    ]
    resources = [
        RemoteResource(str(r.uri), r.name, r.mime_type or "")
        for r in (
            await read_pages(client.list_resources, "resources") if can.resources else []
        )
    ]
    templates = [
        RemoteResource(t.uri_template, t.name, t.mime_type or "")
        for t in (await list_templates() if can.resources else [])
    ]
    title = f"{info.name} {info.version}" if info else ""
    lists = tuple(tools), tuple(prompts), tuple(resources)
    return ServerListing(*lists, title[:200], tuple(templates))


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
