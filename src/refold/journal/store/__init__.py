"""Where journals are kept: the store port, and stores in files and in memory."""
