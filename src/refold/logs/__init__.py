"""refold's own log: a file of limited size, which is rotated."""
