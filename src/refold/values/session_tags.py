"""The tags of sessions that lists use: pinned sessions come first, and archived sessions are in
a list of their own.
"""

PINNED_TAG, ARCHIVED_TAG = "pinned", "archived"
SHELF_TAGS = frozenset((PINNED_TAG, ARCHIVED_TAG))
