"""Reads, combines and changes settings, keys and the user's trust in folders."""
