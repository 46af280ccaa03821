"""People of a service: their login at an identity provider, and the commands about tenants
and people.

Needs `refold[cluster]`; only web nodes and those commands import it.
"""
