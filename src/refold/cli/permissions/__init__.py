"""Doors about what may run unasked, and whose folders count."""
