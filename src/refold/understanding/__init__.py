"""Statements of models about a repository, each with the place in a file that supports it.

Models read files in pieces and state what the code does. Code checks that the quote of each
statement is in the piece, and drops a statement without a quote. Statements are stored with a
hash of the content that they are about, so a statement about earlier content is never taken for
one about the present content. `code.repomap` knows the structure without a model;
`rlm.leaf_calls` makes the model calls; `claims` checks what an agent says about its own
session.

A statement is fresh as long as the file has a piece with the same hash. A flag or a time that
is set when a file changes could be missed, and then a stale statement would pass for a fresh
statement. Quotes are checked by code, because a second model would sometimes be wrong, too. A
statement can have a true quote and still be wrong, so `ask` prints the lines.
"""
