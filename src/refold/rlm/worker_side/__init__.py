"""The code inside a worker process: it runs cells and holds their variables.

It imports only this package, and cloudpickle: it runs in one process with untrusted code, so the host does
not trust it either.
"""
