"""Fakes for the test of a generated program: responses of a model, and a fake program.

The names end with the backend that a function stands in for.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

from refold.declared.parts import settings as agent


def call_reply_openai_chat(name: str, arguments: dict[str, Any]) -> str:
    """Make a response with a tool call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "call-0", "type": "function", "function": function}
    return openai_chat_body(
        {"role": "assistant", "content": None, "tool_calls": [call]}
    )


def text_reply_openai_chat(text: str) -> str:
    """Make a response of text."""
    return openai_chat_body({"role": "assistant", "content": text})


def openai_chat_body(message: dict[str, Any]) -> str:
    """The body of a response as the API sends it."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return json.dumps({"choices": [{"message": message}], "usage": usage})


def call_reply_anthropic(name: str, arguments: dict[str, Any]) -> str:
    """Make a response with a tool call."""
    return anthropic_body(
        {"type": "tool_use", "id": "c0", "name": name, "input": arguments}
    )


def text_reply_anthropic(text: str) -> str:
    """Make a response of text."""
    return anthropic_body({"type": "text", "text": text})


def anthropic_body(block: dict[str, Any]) -> str:
    """The body of a response as the API sends it."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    return json.dumps({"role": "assistant", "content": [block], "usage": usage})


def call_reply_ollama(name: str, arguments: dict[str, Any]) -> str:
    """Make a response with a tool call."""
    call = {"function": {"name": name, "arguments": arguments}}
    return ollama_body({"role": "assistant", "content": "", "tool_calls": [call]})


def text_reply_ollama(text: str) -> str:
    """Make a response of text."""
    return ollama_body({"role": "assistant", "content": text})


def ollama_body(message: dict[str, Any]) -> str:
    """The body of a response as the API sends it."""
    counts = {"prompt_eval_count": 10, "eval_count": 5}
    return json.dumps({"message": message, "done": True, **counts})


def text_reply_claude_code(text: str) -> str:
    """Make a response of text."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    return json.dumps({"type": "result", "result": text, "usage": usage})


def text_reply_codex_cli(text: str) -> str:
    """Make a response of text."""
    item = {"type": "agent_message", "text": text}
    usage = {"input_tokens": 10, "output_tokens": 5}
    lines = [
        {"type": "item.completed", "item": item},
        {"type": "turn.completed", "usage": usage},
    ]
    return "\n".join(map(json.dumps, lines))


def text_reply_gemini_cli(text: str) -> str:
    """Make a response of text."""
    stats = {"input_tokens": 10, "output_tokens": 5}
    lines = [
        {"type": "message", "role": "assistant", "content": text},
        {"type": "result", "status": "success", "stats": stats},
    ]
    return "\n".join(map(json.dumps, lines))


def text_reply_plain_programs(text: str) -> str:
    """Make a response of text."""
    return text


def variables() -> dict[str, str]:
    """Set a key; set no proxy, because the fake is on this machine."""
    return {"no_proxy": "*", agent.API_KEY_VARIABLE: "key"}


def variables_without_key() -> dict[str, str]:
    """Set no proxy, because the fake is on this machine."""
    return {"no_proxy": "*"}


# What the program is called that the agent runs.
PROGRAM = "claude"


def use_fake_on_path(fake: Path) -> contextlib.AbstractContextManager[object]:
    """Run the fake instead of the real program while this context is open."""
    fake.with_name(PROGRAM).symlink_to(fake)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    return mock.patch.dict(os.environ, {"PATH": path})


def use_fake_as_command(fake: Path) -> contextlib.AbstractContextManager[object]:
    """Run the fake instead of the real program while this context is open."""
    arguments = [str(fake), *agent.COMMAND[1:]]
    return mock.patch.object(agent, "COMMAND", arguments)
