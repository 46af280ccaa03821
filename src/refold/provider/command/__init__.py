"""Command lines of other agents as models: each response is one run of a program.

`spec` describes a program; `backends` has those that refold knows, and finds one by its
name. `prompt` renders the conversation and `output` parses what the program prints; both
are pure. `backend` runs the program as a provider, `errors` explains a failure.
"""
