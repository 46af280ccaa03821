"""Hooks: programs and functions of the user that run at events of a session."""
