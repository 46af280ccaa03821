"""Agents as values: prompt, tools, rules and limits; and the subagents of a session."""
