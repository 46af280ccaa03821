"""The terminal as a device, and what the line terminal and the full screen share of it."""
