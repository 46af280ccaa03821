"""Uses the command lines of other agents as models: each response is one run of a program.

`spec` describes a program; `backends` lists the programs that refold knows. `prompt` renders
the conversation and `output` parses what the program prints; both are pure. `backend` runs the
program as a provider, and `errors` explains a failure.
"""
