"""Settings: their sources, and which one wins."""
