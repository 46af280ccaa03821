"""What a screen shows of a session, as a value: a fold of its events and live news."""
