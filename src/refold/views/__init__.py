"""Renders state as text, lines or documents. Pure: nothing is printed."""
