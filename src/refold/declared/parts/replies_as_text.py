"""Tool calls as text, for the test of a generated program that runs another program."""

import json
from typing import Any

from refold.declared.parts.replies_claude_code import saying


def calling(name: str, arguments: dict[str, Any]) -> str:
    """A response with a tool call."""
    call = json.dumps({"name": name, "arguments": arguments})
    return saying(f"<tool_call>\n{call}\n</tool_call>")
