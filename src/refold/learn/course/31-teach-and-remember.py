"""Teach an agent how something is done, and let it remember what you want."""

import os
import subprocess
import sys
from pathlib import Path

from refold import Agent

HOME = Path(os.environ["REFOLD_HOME"])  # the settings and sessions of this folder
SKILL = """---
name: tea
description: Make tea that is not bitter.
---
Boil water. Pour it over the leaves, and wait for four minutes.
"""


def keep_people_out(event):
    """Refuse notes about a person."""
    is_note = event["tool"] == "memory_write"
    if is_note and event["tool_input"].get("section") == "person":
        return {"decision": "block", "reason": "Nothing about people is kept here."}
    return None


file = HOME / "skills" / "tea" / "SKILL.md"
file.parent.mkdir(parents=True, exist_ok=True)
file.write_text(SKILL)
hooks = {"PreToolUse": keep_people_out}
agent = Agent(model="lesson/scripted", hooks=hooks)
print(agent.run(" ".join(sys.argv[1:])).text, flush=True)
subprocess.run([sys.executable, "-m", "refold", "memory", "show"])
