"""All sessions in one SQLite file, for lists and searches. The file may be deleted.

`session_card` has what a list shows of a session, `search_text` the text that is indexed
and the syntax of a search; `database` stores both in SQLite, `indexer` follows the
journals, and `catalogue` is the interface. Journals are only read, without a lock.
"""
