"""The checks of the lessons: each module has a `LESSON_DEMO`, and a function `check`.

A check runs the reader's program several times, and compares what the model was asked, which
files exist, and what was printed. It does not examine the source: any program that does the
right thing passes.
"""
