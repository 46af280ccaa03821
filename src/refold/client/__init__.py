"""The client session: one handle on a session for every client, and `Agent` for programs."""
