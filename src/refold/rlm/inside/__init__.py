"""What runs inside a worker process: the cells, their variables, what they may call.

Nothing here imports anything of refold but this folder, and of others only cloudpickle:
it runs beside code that nobody trusts, so nothing here is trusted by the host either.
"""
