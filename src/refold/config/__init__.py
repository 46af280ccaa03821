"""Settings: their sources, and which source wins."""
