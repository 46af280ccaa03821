"""Indexes all sessions in one SQLite file, for lists and searches. The file may be deleted.

`session_card` has what a list shows of a session, `search_text` the text that is indexed
and the syntax of a search; `database` stores both in SQLite, `indexer` follows the
journals, and `catalogue` is the interface. Journals are only read, without a lock.

No turn writes to the catalogue or notifies it, because an index that depends on
notifications is wrong after the first crash or copy. Each query checks size, time and inode
of every journal (25 ms for 5,000), and reads the new lines of those that changed. SQLite
comes with apsw, because the system's may lack FTS5. The tokenizer is `unicode61`: `trigram`
took 11 s instead of 1.5 s to build for 17 MB and finds no two letters, so scripts without
spaces are indexed letter by letter.
"""
