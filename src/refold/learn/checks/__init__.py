"""The checks of the lessons: each module has a `LESSON_DEMO`, and a `check` of the reader's program.

A check runs the program several times and compares what the model was asked, what files there
are, and what was printed. It does not look at the source: any program that does the right
thing passes.
"""
