"""MCP servers as a source of tools: their configuration, their connections, their tools."""
