"""What can happen in a session: the events, and how a line holds one."""
