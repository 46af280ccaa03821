"""The source of generated programs: ordinary modules that are type-checked and tested here.

refold itself never runs them. `declared.generate` takes the modules that an agent needs, drops
the functions that it never calls, sets the constants of `settings`, and joins the rest to
one file.

There is one module for each backend; all of them define `ask`, or `command` and `parse_reply`.
Other choices, such as a context mode or a format, are functions of one module: `in_context`,
`in_context_fresh`, … In a program, the chosen one has the name of the first. `fakes`, `play` and
`checks` become the program's test.
"""
