"""What Anthropic's Messages API answers, for the test of a generated program."""

import json
from typing import Any


def calling(name: str, arguments: dict[str, Any]) -> str:
    """A response with a tool call."""
    return body({"type": "tool_use", "id": "c0", "name": name, "input": arguments})


def saying(text: str) -> str:
    """A response in words."""
    return body({"type": "text", "text": text})


def body(block: dict[str, Any]) -> str:
    """A response as the API sends it."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    return json.dumps({"role": "assistant", "content": [block], "usage": usage})
