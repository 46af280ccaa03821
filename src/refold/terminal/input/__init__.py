"""The input of the line terminal: keys, lines and completion."""
