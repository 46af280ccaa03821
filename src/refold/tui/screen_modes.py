"""The terminal modes that the full screen needs, and how to restore the former ones.

They are also saved in a file, so that the next start restores a terminal whose process was
killed.
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

from refold.console.keys import set_modes, terminal_modes
from refold.safe_open import open_checked, read_regular

# The alternate screen, bracketed paste, and the cursor hidden until the first frame.
_ENTER_SCREEN = "\x1b[?1049h\x1b[?2004h\x1b[?25l"
_ENABLE_MOUSE = "\x1b[?1000h\x1b[?1006h"
_LEAVE_MODES = "\x1b[?2026l\x1b[r\x1b[?1006l\x1b[?1000l\x1b[?2004l\x1b[0m\x1b[?25h"
_LEAVE_SCREEN = "\x1b[?1049l"
# Every key as a sequence of its own, and with its place on an English keyboard: the kitty
# protocol, whose modes are a stack per screen, and what xterm and tmux have instead.
_KITTY_KEYS, _XTERM_KEYS = ("\x1b[>5u", "\x1b[<u"), ("\x1b[>4;1m", "\x1b[>4m")
_KITTY_TERMS = (
    "xterm-kitty", "xterm-ghostty", "foot", "alacritty", "wezterm", "rio", "contour",
)  # fmt: skip
_KITTY_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty", "rio")
_MAX_FILE_BYTES = 10_000


class _SavedModes(Struct):
    """The terminal modes of a process, as termios returns them, for the modes file."""

    pid: int
    modes: list[int]
    characters: list[int]


class ScreenModes:
    """Sets and restores the modes. `state` is the directory for the file, if any."""

    def __init__(
        self, state: Path | None, *, mouse: bool, environ: Mapping[str, str]
    ) -> None:
        self._file = _modes_file(state)
        self._mouse = mouse
        self._keys, keys_before = key_modes(environ)
        self._leave = f"{keys_before}{_LEAVE_MODES}{_LEAVE_SCREEN}"
        self._before: list[Any] = []

    def enter(self) -> None:
        """Take the terminal. Modes that a killed process left are restored first."""
        self._restore_after_kill()
        self._before = terminal_modes(0)
        self._store_modes()
        self.resume()

    def resume(self) -> None:
        with suppress(termios.error):
            tty.setraw(0, termios.TCSADRAIN)
        write(enter_sequence(mouse=self._mouse) + self._keys)

    def leave(self) -> None:
        """Give the terminal back as it was."""
        write(self._leave)
        set_modes(0, self._before)

    def close(self) -> None:
        self.leave()
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()

    def _store_modes(self) -> None:
        if self._file is None or not self._before:
            return
        *numbers, characters = self._before
        left = _SavedModes(
            os.getpid(), numbers, [_to_number(character) for character in characters]
        )
        with suppress(OSError):  # the file is a convenience
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = open_checked(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(file, "wb") as stream:
                stream.write(msgspec.json.encode(left))

    def _restore_after_kill(self) -> None:
        if self._file is None:
            return
        try:
            content, _ = read_regular(self._file, _MAX_FILE_BYTES, follow=False)
            left = msgspec.json.decode(content, type=_SavedModes)
        except (OSError, msgspec.DecodeError):
            return
        if _is_running(left.pid):
            return
        write(self._leave)
        characters = [
            bytes([character & 255]) if character >= 0 else -character - 1
            for character in left.characters
        ]
        with suppress(TypeError, ValueError):
            set_modes(0, [*left.modes, characters])


def enter_sequence(*, mouse: bool) -> str:
    return _ENTER_SCREEN + (_ENABLE_MOUSE if mouse else "")


def key_modes(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return what makes this terminal distinguish more keys, and what ends that.

    Only terminals known to support it are asked: another may print the order.
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
    try:
        name = os.ttyname(0).strip("/").replace("/", "-")
    except OSError:
        return None
    return state / "screens" / f"{name}.json" if state is not None else None


def _to_number(character: bytes | int) -> int:
    """Return a control character as its byte; the numbers of termios become negative."""
    return character[0] if isinstance(character, bytes) else -character - 1


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def write(text: str) -> None:
    """Write the text, in pieces if necessary; nothing if the terminal is gone."""
    data = text.encode()
    with suppress(OSError):
        while data:
            data = data[os.write(1, data) :]
