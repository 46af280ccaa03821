"""How a person is heard: keys, lines, completion."""
