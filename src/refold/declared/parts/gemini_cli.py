"""Asks Gemini's command-line program instead of a model."""

from pathlib import Path
from typing import Any

from refold.declared.parts.messages import BackendError
from refold.declared.parts.program_run import ProgramRun, json_lines
from refold.declared.parts.settings import MODEL
from refold.declared.parts.text_calls import instructions

# It has no switch for its own tools, but it obeys a policy.
NO_TOOLS = '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 999\n'


def command(folder: Path, prompt: str) -> ProgramRun:
    """Return how to run the Gemini CLI without its own tools, extensions and servers."""
    system, policy = folder / "system.md", folder / "no_tools.toml"
    system.write_text(instructions(), encoding="utf-8")
    policy.write_text(NO_TOOLS, encoding="utf-8")
    arguments = [
        *("gemini", "--output-format", "stream-json", "--prompt", ""),
        *("--policy", str(policy), "--admin-policy", str(policy)),
        *("--extensions", "none", "--allowed-mcp-server-names", "none", "--skip-trust"),
        *("--approval-mode", "default"),
        *(("--model", MODEL) if MODEL else ()),
    ]
    variables = {
        "GEMINI_SYSTEM_MD": str(system),
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    return ProgramRun(arguments, prompt, variables)


def parse_reply(output: str) -> tuple[str, int, int]:
    """Return the response in Gemini's output, and the input and output tokens."""
    text, tokens_in, tokens_out = "", 0, 0
    for line in json_lines(output):
        if line.get("type") == "message" and line.get("role") == "assistant":
            text += str(line.get("content", ""))
        elif line.get("type") == "result":
            if line.get("status") == "error":
                raise BackendError(f"gemini has failed: {line.get('error')}")
            stats: dict[str, Any] = line.get("stats") or {}
            tokens_in = stats.get("input_tokens") or 0
            tokens_out = stats.get("output_tokens") or 0
    return text, tokens_in, tokens_out
