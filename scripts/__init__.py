"""What the Makefile calls. Programs for whoever works on refold, not part of it."""
