"""Markdown of a model, printed block by block while it comes, and never taken back.

`blocks` finds where each block ends, line by line; `spans` reads the words of a finished
one; `tables` and `coloured` say how the rest looks. `prose` puts them together.
"""
