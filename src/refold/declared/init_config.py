"""Writes an example file of agents, with a comment for each key, for `--init-config FILE`."""

import os
from pathlib import Path

from refold.errors import BadInput, reason_of

_TOML_CONTENT = """\
# Agents for refold. `refold --agents THIS_FILE --list-agents` lists them, and
# `refold --agents THIS_FILE --agent reviewer "Look at my last change."` uses one.
# In .refold/agents.toml or ~/.config/refold/agents.toml they are found without --agents.

# The agent that is used without --agent.
# default = "reviewer"

[agents.reviewer]
description = "Reads a change and says what is wrong with it."
system_prompt = "You review changes. Name the file and the line of each fault."
tools = ["read", "grep", "glob", "list_files"]  # all tools if this is left out
# auto_tools = true        # the listed tools run without asking inside the workspace
# confirm = ["bash"]       # these always ask
# agent_md = "./reviewer.md"          # a file that is added to the prompt
# skills = ["./skills/git.md"]        # files or folders that are added, too
# max_iterations = 20      # model responses in one turn
# approval = "default"     # or auto_edit, plan, sandbox, rules-only, yolo

[agents.fast]
extends = "reviewer"       # the keys of another agent, where this one has none
# backend = "anthropic"    # a provider, or claude-code, codex-cli, gemini-cli, ollama-cli
# model = "claude-haiku-4-5"
# api_key_env = "ANTHROPIC_API_KEY"   # the variable that holds the key
# timeout = 300            # seconds without any data
# max_context_tokens = 100000         # or max_context_chars, max_context_words
# show_tokens = true       # print tokens and cost after each turn
# display = "plain"        # or status, line

[agents.local]
description = "Works with a model on this network."
backend = "ollama"
model = "llama3"
host = "127.0.0.1"
port = 11434

# [agents.program]
# command = ["llm", "-m", "{model}"]  # any program that reads a prompt and prints a response
# own_tools = "none"                  # you declare that it runs nothing and changes nothing
# model = "gpt-4.1-mini"
# context_mode = "sliding"            # or continue, fresh, summarize
# context_format = "xml"              # or plain, markdown, json
# max_messages = 30                   # that sliding and summarize keep
"""
_JSON_CONTENT = """\
{
  "agents": {
    "reviewer": {
      "description": "Reads a change and says what is wrong with it.",
      "system_prompt": "You review changes. Name the file and the line of each fault.",
      "tools": ["read", "grep", "glob", "list_files"]
    },
    "local": {
      "description": "Works with a model on this network.",
      "backend": "ollama",
      "model": "llama3",
      "host": "127.0.0.1",
      "port": 11434
    }
  }
}
"""
_YAML_CONTENT = """\
# Agents for refold. `refold --agents THIS_FILE --list-agents` lists them.

# default: reviewer
agents:
  reviewer:
    description: Reads a change and says what is wrong with it.
    system_prompt: You review changes. Name the file and the line of each fault.
    tools: [read, grep, glob, list_files]  # all tools if this is left out
    # auto_tools: true       # the listed tools run without asking inside the workspace
  local:
    description: Works with a model on this network.
    backend: ollama
    model: llama3
    host: 127.0.0.1
    port: 11434
"""
_CONTENT_BY_SUFFIX = {
    ".toml": _TOML_CONTENT,
    ".json": _JSON_CONTENT,
    ".yaml": _YAML_CONTENT,
    ".yml": _YAML_CONTENT,
}


def write_config(name: str) -> str:
    """Write an example file of agents, and return its name. The ending decides the format.

    Raises `BadInput` if the file exists or cannot be written.
    """
    path = Path(os.path.expanduser(name))
    content = _CONTENT_BY_SUFFIX.get(path.suffix)
    if content is None:
        raise BadInput(
            f"--init-config {name!r}: the name must end in .toml, .yaml, .yml or .json"
        )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError as error:
        raise BadInput(f"{name!r} exists already: name another file") from error
    except OSError as error:
        raise BadInput(
            f"--init-config {name!r} cannot be written: {reason_of(error)}"
        ) from error
    return name
