"""Analyses the source code of a workspace with language servers and grammars."""
