"""Teach an agent how something is done, and let it remember what you want."""

import os
import subprocess
import sys
from pathlib import Path

from refold import Agent

HOME = Path(os.environ["REFOLD_HOME"])  # the settings and sessions of this folder
SKILL = """Boil water. Pour it over the leaves, and wait for four minutes.
"""

file = HOME / "skills" / "tea" / "SKILL.md"
file.parent.mkdir(parents=True, exist_ok=True)
file.write_text(SKILL)
agent = Agent(model="lesson/scripted")
print(agent.run(" ".join(sys.argv[1:])).text, flush=True)
subprocess.run([sys.executable, "-m", "refold", "memory", "show"])
