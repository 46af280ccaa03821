"""Memory: notes for later sessions, in plain files that the user may edit."""
