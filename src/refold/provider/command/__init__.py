"""Other agents' command lines as models: one run of a program is one answer.

`spec` says what there is to know of a program, `backends` which are built in,
`templates` makes one of what is `given` in a person's settings; `keys` are the
variables to hide. `transcript` and `formats` make a prompt of the talk, `reading` an
answer of what is printed: all pure; `prompts` keeps what was written. `program` runs
it, `workplace` prepares where, `failing` says what went wrong, and `backend` makes a
provider of them.
"""
