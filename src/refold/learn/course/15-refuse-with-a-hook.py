"""An agent that may change files, as far as a rule of your team allows it."""

import sys
from pathlib import Path

from refold import Agent


def needs_tests(event):
    """Refuse to write a module before its test."""
    name = Path(event["tool_input"].get("path", "")).name
    is_test = name.startswith("test_")
    if name.endswith(".py") and not is_test and not Path(f"test_{name}").exists():
        return {"decision": "block", "reason": f"Write test_{name} first."}
    return None


hooks = {"PreToolUse": needs_tests}
agent = Agent(model="lesson/scripted", mode="accept-edits", hooks=hooks)
result = agent.run(" ".join(sys.argv[1:]))
print(result.text)
