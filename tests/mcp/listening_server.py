"""Runs an MCP server of the protocol 2026-07-28, whose client listens for changes of resources.

Its tool has the same arguments as that of `fake_server` in the mode "subscribe". The file that the
argument names gets a line for each stream that is opened or closed.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.subscriptions import InMemorySubscriptionBus


class NotingBus(InMemorySubscriptionBus):
    def subscribe(self, listener: Any) -> Callable[[], None]:
        note("open")
        unsubscribe = super().subscribe(listener)

        def end() -> None:
            note("close")
            unsubscribe()

        return end


def note(line: str) -> None:
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


server = MCPServer("listening", subscriptions=NotingBus())


@server.resource("note://{name}")
def read_note(name: str) -> str:
    """Return a note."""
    return f"text of {name}"


@server.tool()
async def echo(text: str, context: Context) -> str:
    """Report changes of resources, each this number of times."""
    for uri, times in json.loads(text):
        for _ in range(times):
            await context.notify_resource_updated(uri)
    return text


server.run("stdio")
