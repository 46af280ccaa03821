"""Doors for people at a terminal and for scripts."""
