"""The kinds of events of a session, and their encoding as lines."""
