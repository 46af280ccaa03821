"""Several processes behind one database: web nodes take orders and show sessions, workers run them.

Needs `refold[cluster]`, except for `live_documents`. Web nodes, workers and `refold attach` import it.
"""
