"""What the words "mode" and "verdict" mean, to the rules and to the journal."""

from typing import Literal, TypeAlias

# May a call run? The strictest that anybody wants holds.
Verdict: TypeAlias = Literal["allow", "ask", "deny"]

# How much runs unasked: what only looks; edits inside the workspace too; everything.
Mode: TypeAlias = Literal["default", "accept-edits", "bypass"]
