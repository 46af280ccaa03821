"""`refold sessions`: lists, searches, names, exports and deletes sessions."""
