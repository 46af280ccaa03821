"""Makes responses of fake models, for the test of a generated program.

A function's name ends with the backend whose responses it makes.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

from refold.declared.parts import settings as agent


def call_reply_openai_chat(name: str, arguments: dict[str, Any]) -> str:
    """Return the text of a fake response that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "call-0", "type": "function", "function": function}
    return openai_chat_body(
        {"role": "assistant", "content": None, "tool_calls": [call]}
    )


def text_reply_openai_chat(text: str) -> str:
    """Return the text of a fake response without a call."""
    return openai_chat_body({"role": "assistant", "content": text})


def openai_chat_body(message: dict[str, Any]) -> str:
    """Return the body of an HTTP response with this message."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return json.dumps({"choices": [{"message": message}], "usage": usage})


def call_reply_anthropic(name: str, arguments: dict[str, Any]) -> str:
    """Return the text of a fake response that calls a tool."""
    return anthropic_body(
        {"type": "tool_use", "id": "c0", "name": name, "input": arguments}
    )


def text_reply_anthropic(text: str) -> str:
    """Return the text of a fake response without a call."""
    return anthropic_body({"type": "text", "text": text})


def anthropic_body(block: dict[str, Any]) -> str:
    """Return the body of an HTTP response with this content block."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    return json.dumps({"role": "assistant", "content": [block], "usage": usage})


def call_reply_ollama(name: str, arguments: dict[str, Any]) -> str:
    """Return the text of a fake response that calls a tool."""
    call = {"function": {"name": name, "arguments": arguments}}
    return ollama_body({"role": "assistant", "content": "", "tool_calls": [call]})


def text_reply_ollama(text: str) -> str:
    """Return the text of a fake response without a call."""
    return ollama_body({"role": "assistant", "content": text})


def ollama_body(message: dict[str, Any]) -> str:
    """Return the body of an HTTP response with this message."""
    counts = {"prompt_eval_count": 10, "eval_count": 5}
    return json.dumps({"message": message, "done": True, **counts})


def text_reply_claude_code(text: str) -> str:
    """Return what Claude Code prints for a response with this text."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    return json.dumps({"type": "result", "result": text, "usage": usage})


def text_reply_codex_cli(text: str) -> str:
    """Return what Codex prints for a response with this text."""
    item = {"type": "agent_message", "text": text}
    usage = {"input_tokens": 10, "output_tokens": 5}
    lines = [
        {"type": "item.completed", "item": item},
        {"type": "turn.completed", "usage": usage},
    ]
    return "\n".join(map(json.dumps, lines))


def text_reply_gemini_cli(text: str) -> str:
    """Return what the Gemini CLI prints for a response with this text."""
    stats = {"input_tokens": 10, "output_tokens": 5}
    lines = [
        {"type": "message", "role": "assistant", "content": text},
        {"type": "result", "status": "success", "stats": stats},
    ]
    return "\n".join(map(json.dumps, lines))


def text_reply_plain_programs(text: str) -> str:
    """Return what the program prints for a response with this text."""
    return text


def variables() -> dict[str, str]:
    """Return environment variables with a fake key, and without a proxy."""
    return {"no_proxy": "*", agent.API_KEY_VARIABLE: "key"}


def variables_without_key() -> dict[str, str]:
    """Return environment variables without a proxy: the fake server is on this machine."""
    return {"no_proxy": "*"}


# The name of the program that the agent runs.
PROGRAM = "claude"


def use_fake_on_path(fake: Path) -> contextlib.AbstractContextManager[object]:
    """Put the program `fake` first on the PATH, under the real program's name."""
    fake.with_name(PROGRAM).symlink_to(fake)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    return mock.patch.dict(os.environ, {"PATH": path})


def use_fake_as_command(fake: Path) -> contextlib.AbstractContextManager[object]:
    """Make the program `fake` the command that the agent starts."""
    arguments = [str(fake), *agent.COMMAND[1:]]
    return mock.patch.object(agent, "COMMAND", arguments)
