"""Runs a model on this machine: its file, its server, and the format of its tool calls."""
