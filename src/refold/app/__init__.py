"""Builds refold from its parts: the only package that connects concrete parts.

It decides which store, wire, tools, place and policies a session gets; packages below know only
ports. Modules that take long to import are imported in the function that uses them, because
imports at the top would delay every start.
"""
