"""Computes what a screen shows of a session, as one value, from its events and live news.

Live news changes only the response in progress and the last output of running calls; the next
event replaces both. So a watcher, a client that joins late and a reader of the journal see the
same blocks. Finished blocks never change: calls appear in the order in which they end, because
a terminal that can only append could not print them in another order. A rewind adds a notice
and removes nothing, because the user has already read the blocks.
"""
