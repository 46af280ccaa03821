"""Joins a session of a service from another machine, by the service's address and a token.

Only `refold attach URL` and `refold tui --attach URL` import it. `client.nodes` joins
through the service's database, and `client.remote_session` joins a session of this machine.
"""
