"""Serves a workspace to refold on another machine. Uses the standard library only."""
