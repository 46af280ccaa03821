"""Sets the terminal modes that the full screen needs, and restores the former modes afterwards.

The former modes are also saved in a file. If the process is killed, the next start restores the
terminal from this file.
"""

import os
import termios
import tty
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from refold.console.keyboard_modes import set_modes, terminal_modes
from refold.safe_open import open_checked, read_regular

# The alternate screen, bracketed paste, and the cursor hidden until the first frame.
_ENTER_SCREEN = "\x1b[?1049h\x1b[?2004h\x1b[?25l"
_ENABLE_MOUSE = "\x1b[?1000h\x1b[?1006h"
_LEAVE_MODES = "\x1b[?2026l\x1b[r\x1b[?1006l\x1b[?1000l\x1b[?2004l\x1b[0m\x1b[?25h"
_LEAVE_SCREEN = "\x1b[?1049l"
# Each pair makes every key a separate sequence, with its position on an English keyboard, and
# ends that: in the kitty protocol, whose modes are a stack per screen, and in xterm and tmux.
_KITTY_KEYS, _XTERM_KEYS = ("\x1b[>5u", "\x1b[<u"), ("\x1b[>4;1m", "\x1b[>4m")
_KITTY_TERMS = (
    "xterm-kitty", "xterm-ghostty", "foot", "alacritty", "wezterm", "rio", "contour",
)  # fmt: skip
_KITTY_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty", "rio")
_MAX_FILE_BYTES = 10_000


class _SavedModes(Struct):
    """The content of the modes file: a process, and its terminal's former modes as termios has
    them.
    """

    pid: int
    modes: list[int]
    characters: list[int]


class ScreenModes:
    """Sets and restores terminal modes. `state` is the directory for the modes file, or None."""

    def __init__(
        self, state: Path | None, *, mouse: bool, environ: Mapping[str, str]
    ) -> None:
        self._file = _modes_file(state)
        self._mouse = mouse
        self._enable_keys, disable_keys = key_modes(environ)
        self._leave = f"{disable_keys}{_LEAVE_MODES}{_LEAVE_SCREEN}"
        self._former_modes: list[Any] = []

    def enter(self) -> None:
        """Take over the terminal. Modes that a killed process has left are restored first."""
        self._restore_after_kill()
        self._former_modes = terminal_modes(0)
        self._store_modes()
        self.resume()

    def resume(self) -> None:
        """Show the full screen, and let the terminal deliver single keys."""
        with suppress(termios.error):
            tty.setraw(0, termios.TCSADRAIN)
        write(enter_sequence(mouse=self._mouse) + self._enable_keys)

    def leave(self) -> None:
        """Restore the former modes of the terminal."""
        write(self._leave)
        set_modes(0, self._former_modes)

    def close(self) -> None:
        """Restore the terminal, and delete the modes file, which only matters after a kill."""
        self.leave()
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()

    def _store_modes(self) -> None:
        """Save the former modes of the terminal in the modes file."""
        if self._file is None or not self._former_modes:
            return
        *flags, characters = self._former_modes
        character_codes = [_to_number(character) for character in characters]
        saved = _SavedModes(os.getpid(), flags, character_codes)
        with suppress(OSError):  # the file is only a convenience
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = open_checked(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(file, "wb") as stream:
                stream.write(msgspec.json.encode(saved))

    def _restore_after_kill(self) -> None:
        """Restore modes from the modes file, if the process that saved them was killed."""
        if self._file is None:
            return
        try:
            content, _ = read_regular(self._file, _MAX_FILE_BYTES, follow=False)
            saved = msgspec.json.decode(content, type=_SavedModes)
        except (OSError, msgspec.DecodeError):
            return
        if _is_running(saved.pid):
            return
        write(self._leave)
        characters = [_to_character(number) for number in saved.characters]
        with suppress(TypeError, ValueError):
            set_modes(0, [*saved.modes, characters])


def enter_sequence(*, mouse: bool) -> str:
    return _ENTER_SCREEN + (_ENABLE_MOUSE if mouse else "")


def key_modes(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return sequences to begin and to end a mode in which the terminal reports more keys.

    Both are "" unless the terminal is known to support the mode. Another terminal could print
    the sequences.
    """
    term = environ.get("TERM", "")
    if term.startswith("screen") and not environ.get("TMUX"):
        return "", ""
    if environ.get("TMUX") or term.startswith("tmux") or environ.get("XTERM_VERSION"):
        return _XTERM_KEYS
    known = (
        term.startswith(_KITTY_TERMS)
        or environ.get("TERM_PROGRAM") in _KITTY_PROGRAMS
        or environ.get("KITTY_WINDOW_ID")
    )
    return _KITTY_KEYS if known else ("", "")


def _modes_file(state: Path | None) -> Path | None:
    """Return the modes file of this terminal, or None without a terminal or `state`."""
    try:
        name = os.ttyname(0).strip("/").replace("/", "-")
    except OSError:
        return None
    return state / "screens" / f"{name}.json" if state is not None else None


def _to_number(character: bytes | int) -> int:
    """Return a number for an entry of termios' list of control characters, for the modes file.

    A character becomes its byte; an entry that is a number becomes negative.
    """
    return character[0] if isinstance(character, bytes) else -character - 1


def _to_character(number: int) -> bytes | int:
    """Return the entry for which `_to_number` returned this number."""
    return bytes([number & 255]) if number >= 0 else -number - 1


def _is_running(pid: int) -> bool:
    """Return whether the process exists, even if it belongs to another user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True


def write(text: str) -> None:
    """Write text to the terminal. If the terminal is closed, do nothing."""
    data = text.encode()
    with suppress(OSError):
        while data:
            data = data[os.write(1, data) :]
