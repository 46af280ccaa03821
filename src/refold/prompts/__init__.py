"""Prompts: the texts that models read, stored in separate files, and the code that joins them."""
