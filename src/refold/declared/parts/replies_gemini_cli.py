"""What the Gemini CLI prints, for the test of a generated program."""

import json


def saying(text: str) -> str:
    """A response in words."""
    stats = {"input_tokens": 10, "output_tokens": 5}
    lines = [
        {"type": "message", "role": "assistant", "content": text},
        {"type": "result", "status": "success", "stats": stats},
    ]
    return "\n".join(map(json.dumps, lines))
