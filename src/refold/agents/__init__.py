"""Agents as values, with prompt, tools, rules and limits, and the subagents of a session."""
