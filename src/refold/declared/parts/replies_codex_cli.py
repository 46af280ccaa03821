"""What Codex prints, for the test of a generated program."""

import json


def saying(text: str) -> str:
    """A response in words."""
    item = {"type": "agent_message", "text": text}
    usage = {"input_tokens": 10, "output_tokens": 5}
    lines = [
        {"type": "item.completed", "item": item},
        {"type": "turn.completed", "usage": usage},
    ]
    return "\n".join(map(json.dumps, lines))
