"""The terminal as a device, shared by the line terminal and the full screen."""
