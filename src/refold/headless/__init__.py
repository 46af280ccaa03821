"""Runs tasks without a terminal: reads a prompt or orders, and writes answers."""
