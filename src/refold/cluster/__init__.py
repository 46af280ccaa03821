"""Stores sessions in a PostgreSQL database that several machines share.

The modules implement interfaces of `journal` and `client`. They need `refold[cluster]`, and
are imported only if REFOLD_SESSIONS names a database.
"""
