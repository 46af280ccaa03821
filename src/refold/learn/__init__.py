"""Runs `refold learn`, an offline course with a scripted model and real programs.

A lesson has a text, a program that solves it, and a check of the reader's program. `course`
finds the lessons. `workshop` runs a program against `model_server`, and says what is still
missing. `sequence_diagram` draws what happened, and `reader_folder` stores which lessons are
done. `course/` holds the texts and programs; each module of `checks` checks one lesson.

A check runs the reader's program and examines what happened: the requests to the server, the
output and the files. A check of the source would accept only the program that the author of the
lesson had in mind. The program runs without a sandbox, because it is the reader's own and a
first lesson should not need bubblewrap.
"""
