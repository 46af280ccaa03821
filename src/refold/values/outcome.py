"""How a turn can end: with exactly one of these, and a reason for people beside it."""

from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal[
    "answered", "final", "plan_ready", "interrupted", "cancelled",
    "step_limit", "budget", "stuck", "denied", "failed",
]  # fmt: skip
