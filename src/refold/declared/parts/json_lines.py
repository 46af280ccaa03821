"""Output of a program that prints JSON lines."""

import json
from typing import Any


def json_lines(output: str) -> list[dict[str, Any]]:
    """The objects in the lines of an output; a line without one is left out."""
    found: list[dict[str, Any]] = []
    for line in output.splitlines():
        try:
            found.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            continue  # such as a warning
    return found
