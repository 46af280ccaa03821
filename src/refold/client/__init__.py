"""The client session: one handle on a session for every client, and `Agent` for programs.

Contracts in `pyproject.toml` keep clients from importing anything behind the handle: with
the whole app at hand, each client would use what it finds, and have its own way into a
session. So whatever a client may know first needs a name here. Orders and documents are
Structs, defined once, from which the JSON Schema and the lines of stdio are generated.
"""
