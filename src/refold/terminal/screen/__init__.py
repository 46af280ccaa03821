"""Output: what the terminal supports, and printing what happens."""
