"""Several processes behind one database: web nodes take orders and show sessions, workers run them.

Needs `refold[cluster]`; only `refold web-node` and `refold worker` import it.
"""
