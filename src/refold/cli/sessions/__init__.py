"""`refold sessions` and what picks one: sessions as things to find, name, export and delete."""
