"""The line terminal: reads what the user types, sends orders to the session, prints its events."""
