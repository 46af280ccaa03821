"""The line terminal: reads from the keyboard, sends orders to the session, prints its documents."""
