"""Prints a model's Markdown block by block as it arrives. Nothing is printed twice.

`blocks` finds the end of each block, `spans` parses the inline Markdown of a finished block,
`tables` and `highlight` lay out tables and code, and `renderer` combines them.
"""
