"""The line terminal: a door. It sends to the inbox, and prints what it hears."""
