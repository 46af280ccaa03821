"""Reads what a server offers: its tools, prompts and resources, page by page, within limits.

`manifests` remembers it, and `connection` reads it again when it has changed.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import Client

from refold.mcp import server_tasks
from refold.mcp.answer_repair import schema_as_sent
from refold.mcp.manifests import RemotePrompt, RemoteResource, RemoteTool, ServerListing

MAX_ENTRIES = 1_000  # of a list
_MAX_PAGES = 50


async def read_lists(client: Client, say: Callable[[str], None]) -> ServerListing:
    """Read all lists of a server, page by page. `say` is called with each that is cut."""

    async def pages(ask: Callable[..., Awaitable[Any]], key: str) -> list[Any]:
        entries, cursor = list[Any](), None
        for _ in range(_MAX_PAGES):
            page = await ask(cursor=cursor, cache_mode="refresh")
            entries += getattr(page, key)
            cursor = page.next_cursor
            if not cursor or len(entries) >= MAX_ENTRIES:
                break
        if cursor or len(entries) > MAX_ENTRIES:
            say(f"of its {key} only the first {min(len(entries), MAX_ENTRIES):,} are used")
        return entries[:MAX_ENTRIES]

    can, info = client.server_capabilities, client.server_info
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
    title = f"{info.name} {info.version}" if info else ""
    return ServerListing(tuple(tools), tuple(prompts), tuple(resources), title[:200])
