"""What a screen shows of a session, as a value: a fold of its events and live news.

Live news produces only the response that is being written and the last output of running
calls; an event replaces it. So a watcher, a late joiner and a reader of the journal see the
same blocks. Finished blocks never change: calls appear in the order in which they end, and
a rewind adds a line and removes nothing, because the user has already read it. A terminal
that only appends could not print another order.
"""
