"""Runs Python code whose variables stay between calls, and the model calls of that code."""
