"""A model on this machine: its file, its server, and the protocol of its tool calls."""
