"""`refold sessions`, and the picker of sessions: find, name, export and delete them."""
