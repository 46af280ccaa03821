"""Command lines of other agents as models: each response is one run of a program.

`spec` describes a program; `builtin` has those that refold knows, and `config` those of
the user's settings. `prompt` renders the conversation and `output` parses what the
program prints; both are pure. `workplace` prepares its directory and environment,
`backend` runs it as a provider, `errors` explains a failure, `backends` finds a program
by its name.
"""
