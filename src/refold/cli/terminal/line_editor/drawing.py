"""How whatever prompt_toolkit draws for us looks: its output, its colours, its styles.

What is drawn with it is the business of the prompt and of the list of sessions.
"""

import os
import sys
from typing import Any

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style as Styles

from refold.cli.terminal.look import Look

ESC_ALONE = 0.1  # seconds, after which it is no beginning of another key
_STYLES = {
    "dim": "fg:ansibrightblack",
    "strong": "bold",
    "person": "bold fg:ansiblue",
    "warn": "fg:ansiyellow",
    "good": "fg:ansigreen",
    "bad": "fg:ansired",
    "accent": "fg:ansicyan",
    "auto-suggestion": "fg:ansibrightblack",
}


def drawing(look: Look) -> dict[str, Any]:
    """What an application is given for it."""
    colors = look.color and not look.mono
    return {
        # No cursor position is asked for: an answer that comes late would be typed text.
        "output": Vt100_Output(
            sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False
        ),
        "color_depth": ColorDepth.DEPTH_4_BIT if colors else ColorDepth.DEPTH_1_BIT,
        "style": Styles.from_dict(_STYLES),
        "include_default_pygments_style": False,
    }


def _size() -> Size:
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return Size(24, 80)
    # Some terminals say 0 for what they do not know.
    return Size(found.lines or 24, found.columns or 80)
