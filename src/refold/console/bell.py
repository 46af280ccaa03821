"""Notifies a user who looks elsewhere: by the bell, a terminal sequence, or the desktop.

The display `line` sends notifications, `status` rings the bell, and `plain` does nothing, because its
terminal may print whatever is sent. Text of a model is escaped first. `work` decides when to notify.
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
_MAX_CELLS = 120  # of a notice
_NOTICE_SECONDS = 2.0  # seconds for the desktop to take a notice


def notice_sequence(
    environ: Mapping[str, str], text: str, display: Display = "line"
) -> str:
    """Return what to send to the terminal: the bell, and a notice before it if supported.

    OSC 9 is iTerm2's, OSC 99 kitty's, OSC 777 came from urxvt and is VTE's. No notice is
    sent through tmux or screen: they would need a wrapper to pass it on.
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
    """Show a notice on the desktop, if there is a display and `notify-send`."""
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return
    program = programs.Programs(environ).find("notify-send")
    if program:
        notice = cut(escape_to_one_line(text), _MAX_CELLS)
        with suppress(OSError, programs.TimedOut):
            words = (program, f"--app-name={_NOTICE_TITLE}", "--", _NOTICE_TITLE, notice)
            with CancelScope(shield=True):  # the turn may end before it is shown
                await to_thread.run_sync(programs.run, words, _NOTICE_SECONDS)


class Bell:
    """Decides whether the person has been idle so long that a notice is due.

    `after` is that time in seconds; 0 means never. A key press restarts it.
    """

    def __init__(self, clock: Callable[[], float], after: float) -> None:
        self._clock, self._after = clock, after
        self._seen = math.inf

    def note_key(self) -> None:
        self._seen = self._clock()

    @property
    def is_due(self) -> bool:
        return bool(self._after) and self._clock() - self._seen >= self._after
