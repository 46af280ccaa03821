"""Serves refold as tools to other agents over MCP, as `refold mcp serve`.

It is a client, like the terminal. `refold.mcp` is the other direction: there refold uses
MCP servers. Needs the extra `mcp`, which has the official SDK.
"""
