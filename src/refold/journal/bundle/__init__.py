"""A session in one file: written, and read again."""
