"""The door for programs: an agent is a value, a conversation is what it has of a session."""
