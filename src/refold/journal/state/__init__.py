"""The state of a session: folds of its events, one for each concern. Pure."""
