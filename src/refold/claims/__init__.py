"""Checks the claims of an answer without a model, against the journal and the files."""
