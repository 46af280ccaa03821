"""People of a service: the login at their identity provider, and what a command does with people and tenants.

Needs `refold[cluster]`; only web nodes and the commands about tenants and people import it.
"""
