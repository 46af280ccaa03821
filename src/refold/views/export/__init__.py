"""Exports a session as a document: Markdown, HTML, plain text. Pure."""
