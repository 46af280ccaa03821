"""A session as one HTML file that loads nothing and runs nothing. Pure."""
