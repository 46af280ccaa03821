"""Renders state as text, lines or documents. Pure: no module prints anything."""
