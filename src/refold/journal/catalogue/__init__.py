"""All sessions in one SQLite file, to be listed and searched. It may be deleted.

`session_card` has what is known of a session, `search_text` what can be found in it and
how a search is written; `database` keeps both in SQLite, `indexer` follows the journals,
and `catalogue` is the interface. Journals are only read, without a lock.
"""
