"""A task without a terminal: words or orders come in by a pipe, answers go out, and it always ends."""
