"""Calls made by writing Python: an answer's fenced blocks are one call of `python`.

For models that do more in a few lines of a program than in many calls. `acting` wraps a
provider, `blocks` finds the code in an answer. What code may do is no business of this
room.
"""
