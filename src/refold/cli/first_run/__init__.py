"""The first minutes: what to think with, and the tour."""
