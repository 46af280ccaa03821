"""What Ollama's API answers, for the test of a generated program."""

import json
from typing import Any


def calling(name: str, arguments: dict[str, Any]) -> str:
    """A response with a tool call."""
    call = {"function": {"name": name, "arguments": arguments}}
    return body({"role": "assistant", "content": "", "tool_calls": [call]})


def saying(text: str) -> str:
    """A response in words."""
    return body({"role": "assistant", "content": text})


def body(message: dict[str, Any]) -> str:
    """A response as the API sends it."""
    counts = {"prompt_eval_count": 10, "eval_count": 5}
    return json.dumps({"message": message, "done": True, **counts})
