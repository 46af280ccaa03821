"""Reads skills: instructions for kinds of work, which the model reads only when necessary."""
