"""Give a model tasks, and count what it got right."""

import subprocess
import sys
from pathlib import Path

TASKS = r"""
[[tasks]]
name = "eggs"
prompt = "Add the line 'eggs' at the end of list.txt."
files = { "list.txt" = "milk\nbread\n" }
keep = ["milk", "bread"]
checks = [{ file = "list.txt", equals = "milk\nbread\neggs" }]

[[tasks]]
name = "count"
prompt = "How many lines does list.txt have? Answer with a sentence."
files = { "list.txt" = "milk\nbread\n" }
checks = [{ matches = '\b2\b' }]
"""

Path("tasks.toml").write_text(TASKS)
evaluate = [sys.executable, "-m", "refold", "eval", "tasks.toml"]
subprocess.run([*evaluate, "-m", "lesson/scripted", "--permission-mode", "accept-edits"])
