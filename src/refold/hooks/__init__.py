"""Hooks: programs and functions of the user that are run for events of a session."""
