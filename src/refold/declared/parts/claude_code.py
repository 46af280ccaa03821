"""Asks Claude Code's command-line program instead of a model."""

import json
from pathlib import Path
from typing import Any

from refold.declared.parts.messages import BackendError
from refold.declared.parts.program_run import ProgramRun
from refold.declared.parts.settings import MODEL
from refold.declared.parts.text_calls import instructions


def command(folder: Path, prompt: str) -> ProgramRun:
    """Return how to run Claude Code without its own tools, settings and memory."""
    system = folder / "system.md"
    system.write_text(instructions(), encoding="utf-8")
    arguments = [
        *("claude", "-p", "--output-format", "json"),
        *("--system-prompt-file", str(system), "--model", MODEL),
        *("--tools", "", "--restricted", "--strict-mcp-config"),
        *("--setting-sources", "", "--disable-slash-commands", "--no-chrome"),
        *("--no-session-persistence", "--permission-mode", "dontAsk"),
        *("--permission-prompts", "none"),
    ]
    # Otherwise it reads every file that the conversation names as @file.
    variables = {
        "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
        "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
        "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    }
    return ProgramRun(arguments, prompt, variables)


def parse_reply(output: str) -> tuple[str, int, int]:
    """Return the response in Claude Code's output, and the input and output tokens."""
    try:
        reply = json.loads(output)
        text = str(reply["result"])
        usage: dict[str, Any] = reply.get("usage") or {}
    except (ValueError, KeyError, TypeError) as error:
        raise BackendError(f"claude has printed no result: {output[-500:]}") from error
    if reply.get("is_error"):
        raise BackendError(f"claude has failed: {text}")
    inputs = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    tokens_in = sum(usage.get(name) or 0 for name in inputs)
    return text, tokens_in, usage.get("output_tokens") or 0
