"""The documents of `--output-format stream-json`, made from events and live news."""
