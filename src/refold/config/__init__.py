"""Settings: where they come from, and which one holds."""
