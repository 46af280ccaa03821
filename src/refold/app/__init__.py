"""The composition root: the only package that connects concrete parts.

It decides which store, wire, tools, place and policies a session gets; packages below know
only ports. Modules that take long to import are imported where they are used, because every
start pays for what is imported at the top.
"""
