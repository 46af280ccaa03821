"""The composition root: the one place where concrete things are put together.

Which store, wire, tools, place and policies a session gets is decided here and nowhere
else; everybody below knows ports. Whatever takes long to import is imported where it is
used, because every start pays for what stands at the top.
"""
