"""What a session knows: folds of its events, one for each concern. Pure."""
