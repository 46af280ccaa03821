"""The documents of `--output-format stream-json`, which are made from events and live news."""
