"""What the Makefile calls. Programs for developers of refold, not part of it."""
