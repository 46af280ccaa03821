"""Reads the configuration of MCP servers, connects to the servers, and calls their tools."""
