"""A task without a terminal: a prompt or orders in, answers out; and it always ends."""
