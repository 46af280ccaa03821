"""What refold wrote down about its own work: one file that never grows large."""
