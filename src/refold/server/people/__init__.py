"""A web node for people who log in, of any number of tenants.

`refold serve` has one user, and does not use it.
"""
