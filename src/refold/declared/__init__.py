"""Agents declared as data: in agents.toml, agents.yaml, agents.json, or as Prolog facts.

Such a file can name a program, a key and rules that let tools run without a question, so a
project's file is trusted by its hash, while agents in Markdown can only narrow rights and
are trusted with their folder. The package turns a file into settings, rules and a profile,
which `cli.launch` puts below the flags; no start without such a file imports it. Prolog
facts are read by our own parser: a Prolog would have to be installed, or would run what is
in the file.
"""
