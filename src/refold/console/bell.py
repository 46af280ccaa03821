"""Notifies a user who is not looking at the terminal.

With the display `line`, a notification is sent to the terminal or the desktop. With `status`,
the bell rings. With `plain`, nothing happens, because the terminal may show control sequences
as text. Text of a model is escaped first. The module `work` decides when to notify.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress

from anyio import CancelScope, to_thread

from refold import programs
from refold.console.capabilities import Display
from refold.views.escape import escape_to_one_line
from refold.views.wrap import cut

BELL_CHAR = "\x07"
_STRING_END = "\x1b\\"
_NOTICE_TITLE = "refold"
_MAX_CELLS = 120  # the width of a notice
_NOTICE_SECONDS = 2.0  # for the desktop to accept a notice


def notice_sequence(
    environ: Mapping[str, str], text: str, display: Display = "line"
) -> str:
    """Return the control sequences that notify the user of `text`: a notice and the bell.

    Return only the bell for the display `status`, inside tmux or screen, and for a terminal
    without a known sequence for notices. Return "" for the display `plain`. iTerm2 supports
    OSC 9, kitty OSC 99, and urxvt and VTE OSC 777.
    """
    if display == "plain":
        return ""
    if display == "status" or environ.get("TMUX") or environ.get("STY"):
        return BELL_CHAR
    notice = cut(escape_to_one_line(text), _MAX_CELLS)
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if "kitty" in term or environ.get("KITTY_WINDOW_ID"):
        return f"\x1b]99;;{_NOTICE_TITLE}: {notice}{_STRING_END}{BELL_CHAR}"
    if program in ("iTerm.app", "WezTerm", "ghostty"):
        return f"\x1b]9;{_NOTICE_TITLE}: {notice}{_STRING_END}{BELL_CHAR}"
    if environ.get("VTE_VERSION") or term.startswith(("foot", "rxvt-unicode")):
        return f"\x1b]777;notify;{_NOTICE_TITLE};{notice}{_STRING_END}{BELL_CHAR}"
    return BELL_CHAR


async def show_desktop_notice(environ: Mapping[str, str], text: str) -> None:
    """Show a notice on the desktop. Do nothing without a display or `notify-send`."""
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return
    program = programs.Programs(environ).find("notify-send")
    if program:
        notice = cut(escape_to_one_line(text), _MAX_CELLS)
        command = (program, f"--app-name={_NOTICE_TITLE}", "--", _NOTICE_TITLE, notice)
        # The turn may end before the notice is shown.
        with suppress(OSError, programs.TimedOut), CancelScope(shield=True):
            await to_thread.run_sync(programs.run, command, _NOTICE_SECONDS)


class Bell:
    """Decides whether a notice is due: when the last key is at least `after` seconds ago.

    With `after` 0, a notice is never due.
    """

    def __init__(self, clock: Callable[[], float], after: float) -> None:
        self._clock, self._after = clock, after
        self._last_key_at = math.inf

    def note_key(self) -> None:
        self._last_key_at = self._clock()

    @property
    def is_due(self) -> bool:
        return bool(self._after) and self._clock() - self._last_key_at >= self._after
