"""Which display a terminal gets: `plain`, `status` or `line`. The choice, and no more.

`plain` is text and newlines. `status` may take one line back, with what terminfo says.
`line` is for prompt_toolkit, which writes the same orders to every terminal.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from refold.terminal.screen.terminfo import Terminfo

Display: TypeAlias = Literal["plain", "status", "line"]
_DUMB = ("dumb", "unknown", "")


def is_dumb(environ: Mapping[str, str]) -> bool:
    """Nothing but text can be sent there, by the terminal's own name."""
    return environ.get("TERM", "") in _DUMB


def display(wanted: str, environ: Mapping[str, str], known: Terminfo | None) -> Display:
    """What a terminal gets for which `wanted` was asked, which may be `auto`.

    A name without an entry is a new terminal's, far from home: those all understand what
    xterm does.
    """
    if wanted == "status":
        return "status" if known is not None and known.back else "plain"
    if wanted in ("plain", "line"):
        return cast(Display, wanted)
    if is_dumb(environ):
        return "plain"
    if known is None or known.common:
        return "line"
    return "status" if known.back else "plain"
