"""Doors that read a session and those below it, and change nothing."""
