"""Commands that the person runs themselves, with `!`."""
