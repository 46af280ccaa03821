"""A real model on this machine: its file, its server, and how it is spoken to."""
