"""refold as tools for other agents, over MCP: what they start as `refold mcp serve`.

It is a client, as the terminal is. `refold.mcp` is the other side: servers that refold uses.
It needs the extra `mcp`, with the official SDK.
"""
