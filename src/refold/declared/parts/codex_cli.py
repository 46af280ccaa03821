"""Asks Codex's command-line program instead of a model."""

from pathlib import Path
from typing import Any

from refold.declared.parts.messages import BackendError
from refold.declared.parts.program_run import ProgramRun, json_lines
from refold.declared.parts.settings import MODEL
from refold.declared.parts.text_calls import instructions

# The tools of Codex, by the features that bring them. It ignores names it does not know.
OWN_TOOLS = (
    "shell_tool unified_exec code_mode_host multi_agent multi_agent_v2 goals "
    "hooks plugins remote_plugin apps browser_use browser_use_external "
    "in_app_browser computer_use image_generation view_image skill_search "
    "shell_snapshot sleep_tool tool_suggest standalone_web_search memories"
)


def command(folder: Path, prompt: str) -> ProgramRun:
    """Return how to run Codex without its own tools, settings and instructions."""
    system = folder / "system.md"
    system.write_text(instructions(), encoding="utf-8")
    settings = [
        f'model_instructions_file="{system}"',
        'web_search="disabled"',
        "agents.enabled=false",
        "skills.include_instructions=false",
        "include_permissions_instructions=false",
        "include_environment_context=false",
        "include_apps_instructions=false",
        "include_collaboration_mode_instructions=false",
        "project_doc_max_bytes=0",
        "check_for_update_on_startup=false",
        *(f"features.{name}=false" for name in OWN_TOOLS.split()),
    ]
    arguments = [
        *("codex", "exec", "--json", "--ephemeral", "--ignore-user-config"),
        *("--ignore-rules", "--skip-git-repo-check", "--sandbox", "read-only"),
        *("--color", "never"),
        *(part for setting in settings for part in ("-c", setting)),
        *(("--model", MODEL) if MODEL else ()),
    ]
    return ProgramRun(arguments, prompt)


def parse_reply(output: str) -> tuple[str, int, int]:
    """Return the response in Codex's output, and the input and output tokens."""
    texts: list[str] = []
    tokens_in = tokens_out = 0
    for line in json_lines(output):
        if line.get("type") == "item.completed":
            item: dict[str, Any] = line.get("item") or {}
            if item.get("type") == "agent_message":
                texts.append(str(item.get("text", "")))
        elif line.get("type") == "turn.failed":
            raise BackendError(f"codex has failed: {line.get('error')}")
        elif line.get("type") == "turn.completed":
            usage: dict[str, Any] = line.get("usage") or {}
            tokens_in = usage.get("input_tokens") or 0
            tokens_out = usage.get("output_tokens") or 0
    return "\n\n".join(texts), tokens_in, tokens_out
