"""Reads from and writes to the terminal, for both the line terminal and the full screen."""
