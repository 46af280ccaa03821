"""Reads the web for tools: pages, and the results of search services."""
