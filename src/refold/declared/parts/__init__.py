"""The source of generated programs, as modules that are type-checked and tested here.

refold itself never runs them. For a declared agent, `declared.generate` takes the
modules that it needs, drops the functions that are not used, sets the constants of
`settings`, and joins the rest into one file.

There is one module for each backend, which defines `ask`, or `command` and
`parse_reply`. Other choices, such as a context mode or a format, are functions of one
module: `in_context`, `in_context_fresh`, … In a program, the chosen function is named
like the first of them. `fakes`, `play` and `checks` become the program's test.
"""
