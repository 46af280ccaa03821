"""Reads the web for tools: pages, and the answers of search services."""
