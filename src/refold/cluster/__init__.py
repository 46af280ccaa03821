"""Sessions in a PostgreSQL database that several machines share: adapters of the ports of `journal`.

Needs `refold[cluster]`. Nothing here is imported unless REFOLD_SESSIONS names a database.
"""
