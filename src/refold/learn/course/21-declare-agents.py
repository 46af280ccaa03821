"""Agents that are described in a file."""

import subprocess
import sys
from pathlib import Path

AGENTS = """
[agents.clerk]
description = "Keeps the shopping list."
system_prompt = "You keep a shopping list in list.txt. Be brief."
model = "lesson/scripted"
tools = ["read", "write"]
auto_tools = true
max_iterations = 3

[agents.auditor]
extends = "clerk"
description = "Reads the shopping list."
tools = ["read"]
"""

Path("agents.toml").write_text(AGENTS)
refold = [sys.executable, "-m", "refold", "-p", "--agents", "agents.toml"]
agent, *words = sys.argv[1:]
subprocess.run([*refold, "--agent", agent, " ".join(words)])
