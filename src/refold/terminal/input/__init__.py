"""Input: keys, lines, completion."""
