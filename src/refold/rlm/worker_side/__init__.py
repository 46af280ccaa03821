"""The code inside a worker process: it runs cells and holds their variables.

It imports nothing but this package and cloudpickle. Untrusted code runs in the same process, so
the host does not trust this package either.
"""
