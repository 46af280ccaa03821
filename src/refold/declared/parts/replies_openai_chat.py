"""What OpenAI's Chat Completions API answers, for the test of a generated program."""

import json
from typing import Any


def calling(name: str, arguments: dict[str, Any]) -> str:
    """A response with a tool call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "call-0", "type": "function", "function": function}
    return body({"role": "assistant", "content": None, "tool_calls": [call]})


def saying(text: str) -> str:
    """A response in words."""
    return body({"role": "assistant", "content": text})


def body(message: dict[str, Any]) -> str:
    """A response as the API sends it."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return json.dumps({"choices": [{"message": message}], "usage": usage})
