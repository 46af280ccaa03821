"""`refold learn`: a course that is done offline, with a scripted model and real programs.

A lesson is a text, a program that solves it, and a check of the reader's program.
`course` finds the lessons, `workshop` runs a program against `model_server` and says what is
still missing, `sequence_diagram` draws what happened, `progress` remembers what is done. `course/`
holds the texts and the programs; each module of `checks` checks one lesson.
"""
