"""Exports a session to one file, and imports it."""
