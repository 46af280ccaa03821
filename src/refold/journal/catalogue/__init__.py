"""All sessions in one file, to be listed and searched: a projection that may be deleted.

`card` says what is known of a session, `words` what can be found in it, `query` what a
person may ask for; `tables` keeps that in SQLite, `indexing` follows the journals, and
`catalogue` is what doors use. Journals are only read; nobody's pen is needed.
"""
