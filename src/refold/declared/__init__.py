"""Reads agents that are declared as data: in agents.toml, .yaml, .json, or as Prolog facts.

Such a file can name a program, a key, and rules that let tools run without asking. So the user
must trust the file of a project, which is recorded by its hash. Agents in Markdown can only
narrow rights, so they are trusted with their folder. This package turns a declared agent into
settings, rules and a profile, over which the flags take precedence (`cli.launch`); a start
without such a file does not import it. Prolog facts are read by a parser of our own: a Prolog
system would have to be installed, and would execute the file.
"""
