"""Which terminals are known to open a link that words carry, and how they are told to.

The order is OSC 8 (gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda). A terminal
that does not know it may print it, and inside tmux or screen nobody knows who is outside: so
only those that say who they are get it. The address was made harmless before
(`views.markdown.links`).
"""

import zlib
from collections.abc import Mapping

_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty", "vscode", "Hyper", "Tabby", "rio", "mintty")
_TERMS = ("xterm-kitty", "xterm-ghostty", "foot", "alacritty", "contour", "wezterm", "rio")
_VTE = 5000  # 0.50, of 2017; the one before crashed on some


def are_opened(environ: Mapping[str, str]) -> bool:
    term = environ.get("TERM", "")
    if term.startswith(("tmux", "screen")) or environ.get("TMUX") or environ.get("STY"):
        return False
    version = environ.get("VTE_VERSION", "")
    if version.isdecimal():
        return len(version) < 9 and int(version) >= _VTE
    return bool(
        environ.get("TERM_PROGRAM") in _PROGRAMS
        or term.startswith(_TERMS)
        or environ.get("WT_SESSION")
        or environ.get("KITTY_WINDOW_ID")
    )


def linked(url: str, painted: str) -> str:
    """The rows that one link is broken into have one name, so that they light up together."""
    name = f"{zlib.crc32(url.encode()):x}"
    return f"\x1b]8;id={name};{url}\x1b\\{painted}\x1b]8;;\x1b\\"
