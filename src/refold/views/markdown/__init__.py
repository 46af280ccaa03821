"""Prints a model's Markdown block by block as it arrives; nothing is printed twice.

`blocks` finds where each block ends, line by line; `spans` parses the inline Markdown of a
finished block; `tables` and `highlight` lay out the rest; `renderer` combines them.
"""
