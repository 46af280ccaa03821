"""Workspaces elsewhere, on our side: addresses, the pipe, and the ports over it."""
