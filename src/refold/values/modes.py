"""Permission modes, verdicts, effort levels and outcomes. Imports nothing: flags need it."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

# May a call run? The strictest verdict wins.
Verdict: TypeAlias = Literal["allow", "ask", "deny"]

# What runs without asking: read-only calls; also edits in the workspace; also commands that
# the sandbox keeps to it; read-only calls and nothing else, even if allowed; only what a rule
# allows; everything.
Mode: TypeAlias = Literal[
    "default", "accept-edits", "sandbox", "plan", "rules-only", "bypass"
]

# Names of modes, with those that other agents use.
MODES: Mapping[str, Mode] = {
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

# How hard a model thinks before it responds. "": the provider's default. "off": not at
# all, or as little as the provider allows.
Effort: TypeAlias = Literal["", "off", "low", "medium", "high", "max"]

# How a turn ends: with exactly one of these.
Outcome: TypeAlias = Literal[
    "answered", "final", "plan_ready", "interrupted", "cancelled",
    "step_limit", "budget", "stuck", "denied", "failed",
]  # fmt: skip
