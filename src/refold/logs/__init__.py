"""refold's own log: one file of limited size."""
