"""Tasks without a terminal: a prompt or orders in, answers out. A task always ends."""
