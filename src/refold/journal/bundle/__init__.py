"""A session in one file: export and import."""
