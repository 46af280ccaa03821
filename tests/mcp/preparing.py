"""Prepares an MCP server for tests without a workspace: it only fills in variables."""

from collections.abc import Callable

from anyio.lowlevel import checkpoint

from refold.mcp.server_paths import PreparedServer
from refold.mcp.servers import ServerConfig, resolve


async def prepare_server(server: ServerConfig, begin: Callable[[], None]) -> PreparedServer:
    await checkpoint()
    return PreparedServer(resolve(server, {}))
