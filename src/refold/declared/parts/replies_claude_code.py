"""What Claude Code prints, for the test of a generated program."""

import json


def saying(text: str) -> str:
    """A response in words."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    return json.dumps({"type": "result", "result": text, "usage": usage})
