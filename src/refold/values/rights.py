"""What the words "mode", "verdict" and "confines" mean, to rules, journal and place."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

# May a call run? The strictest that anybody wants holds.
Verdict: TypeAlias = Literal["allow", "ask", "deny"]

# How much runs unasked: what only looks; edits inside the workspace too; looking only,
# and nothing else even if asked; nothing but what a rule allows; everything.
Mode: TypeAlias = Literal["default", "accept-edits", "plan", "rules-only", "bypass"]

# By their names, and by those that people know from elsewhere.
MODES: Mapping[str, Mode] = {
    "default": "default",
    "accept-edits": "accept-edits",
    "plan": "plan",
    "rules-only": "rules-only",
    "bypass": "bypass",
    "acceptEdits": "accept-edits",
    "rulesOnly": "rules-only",
    "bypassPermissions": "bypass",
}


class Confines(Struct, frozen=True):
    """What a command may do besides computing and reading. The place sees to it.

    With `writes` it may change files below the workspace, but no protected ones, save
    those in `opened`, absolute and with links followed: a person saw them named.
    """

    writes: bool = False
    network: bool = False
    opened: tuple[str, ...] = ()
