"""Permission modes, verdicts, effort levels, outcomes and the events of hooks.

The module imports nothing, because the flags of the command line need it at every start.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

# Whether a call may run. The strictest verdict wins.
Verdict: TypeAlias = Literal["allow", "ask", "deny"]

# In a rule: the host may lead into a private network.
PRIVATE_PREFIX = "private:"

# Which calls run without a question. `MODE_MEANINGS` says it for each mode.
Mode: TypeAlias = Literal[
    "default", "accept-edits", "sandbox", "plan", "rules-only", "bypass"
]

# The names of modes, also the names that other agents use.
MODE_NAMES: Mapping[str, Mode] = {
    "default": "default",
    "accept-edits": "accept-edits",
    "sandbox": "sandbox",
    "plan": "plan",
    "rules-only": "rules-only",
    "bypass": "bypass",
    "acceptEdits": "accept-edits",
    "rulesOnly": "rules-only",
    "bypassPermissions": "bypass",
}

# A description of each mode for the user.
MODE_MEANINGS: Mapping[Mode, str] = {
    "default": "read-only calls run without asking; edits and commands ask",
    "accept-edits": "edits inside the workspace run without asking, too",
    "sandbox": "commands that the sandbox keeps to the workspace run without asking, too",
    "plan": "only read-only calls; the model makes a plan for you to approve",
    "rules-only": "only what an allow rule covers runs without asking",
    "bypass": "everything runs without asking, except what every mode asks about",
}

# How hard a model thinks before it responds. "": the provider's default. "off": not at
# all, or as little as the provider allows.
Effort: TypeAlias = Literal["", "off", "low", "medium", "high", "max"]

# The outcomes of a turn. It ends with exactly one of these.
Outcome: TypeAlias = Literal[
    "answered", "final", "plan_ready", "interrupted", "cancelled",
    "step_limit", "budget", "stuck", "denied", "failed",
]  # fmt: skip

# The events that run hooks of the user, with the names of Claude Code.
HookEvent: TypeAlias = Literal[
    "PreToolUse", "PostToolUse", "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop",
    "SubagentStop", "PreCompact", "Notification",
]  # fmt: skip

# The format of a conversation for a model that gets it as one text.
Format: TypeAlias = Literal["plain", "markdown", "json", "xml"]

# How long a run waits for work in the background that will wake its agent after an answer,
# if no limit is set.
AWAITED_SECONDS = 600.0
