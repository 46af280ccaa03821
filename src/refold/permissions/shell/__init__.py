"""Parses command lines and judges each command in them. Nothing here executes a command."""
