"""The API by which every client uses a session: the handle `Session`, and `Agent` for programs.

Contracts in `pyproject.toml` forbid clients to import what is behind the handle. So a name
that a client may use must first be added to this package. Without the contracts, every
client would reach a session in a different way. Orders and documents are Structs; their
JSON Schema and the lines of stdio are generated from them.
"""
