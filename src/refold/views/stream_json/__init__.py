"""The documents of `--output-format stream-json`, and what makes them of events and live news."""
