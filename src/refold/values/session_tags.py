"""Tags of sessions that lists know: pinned sessions come first, archived ones are apart."""

PINNED_TAG, ARCHIVED_TAG = "pinned", "archived"
SHELF_TAGS = frozenset((PINNED_TAG, ARCHIVED_TAG))
