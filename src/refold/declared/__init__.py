"""Agents declared as data: in agents.toml, agents.yaml, agents.json, or as Prolog facts."""
