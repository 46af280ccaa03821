"""Storage of journals: the store port, and stores in files and in memory."""
