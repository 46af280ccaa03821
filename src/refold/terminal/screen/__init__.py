"""The output of the line terminal: the transcript and the status."""
