"""Reads the keyboard while the session works, if there is a line editor.

Bracketed paste is on then too; otherwise each pasted line would be sent by itself. If a prompt opens
or closes in the middle of a paste, the part that was read is handed to the next reader.
"""

import math
import os
import select
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from refold.console.keys import cbreak_mode, discard_input, is_readable, wait_readable
from refold.console.printer import Printer
from refold.console.reader import CTRL_C
from refold.terminal.input.line_editor.drawing import ESC_ALONE
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.values.text import clean

_READ_BYTES = 65_536  # bytes
_ESC_KEY = "\x1b"
_ESC_AGAIN_SECONDS = 1.0
_ENABLE_PASTE_MARKS, _DISABLE_PASTE_MARKS = "\x1b[?2004h", "\x1b[?2004l"
PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
# A person types this much of a mark: Esc. Nothing is bound to Alt and [.
TYPED_MARK_CHARS = 1


# Splits terminal input into keys and pastes, also when a paste has megabytes.
class Paste:
    """The text between two paste marks, collected in pieces; each is searched once."""

    def __init__(self, begun: str = "") -> None:
        self._pieces, self._last = list[str](), ""
        self.over = False
        self.add(begun)

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        end = self._last + piece
        self._last = end[-len(_PASTE_END) :]
        self.over = self.over or _PASTE_END in end

    @property
    def collected_text(self) -> str:
        """The text collected so far, with the end mark and anything after it."""
        return "".join(self._pieces)

    def parts(self) -> tuple[str, str]:
        """Return the pasted text, and what was typed after it."""
        text, _, behind = self.collected_text.partition(_PASTE_END)
        return text, behind


def split_at_paste(typed: str) -> tuple[str, Paste | None]:
    """Return what was typed before a paste, and that paste."""
    before, mark, rest = typed.partition(PASTE_START)
    return before, Paste(rest) if mark else None


def partial_mark_length(typed: str) -> int:
    """Return how many characters at the end may begin the start mark of a paste."""
    lengths = range(len(PASTE_START) - 1, 0, -1)
    return next((n for n in lengths if typed.endswith(PASTE_START[:n])), 0)


class Parser(Vt100Parser):
    """Gives the line editor a paste once it is complete.

    `fed` counts the characters since it was set to zero.
    """

    def __init__(self, on_key: Callable[[KeyPress], None]) -> None:
        super().__init__(on_key)
        self._half = ""  # of the first mark, perhaps
        self._paste: Paste | None = None
        self.fed = 0

    def feed(self, data: str) -> None:
        self.fed += 1
        if self._paste is None:
            before, self._paste = split_at_paste(self._half + data)
            keys = len(before) - (0 if self._paste else partial_mark_length(before))
            self._half = before[keys:]
            super().feed(before[:keys])
        else:
            self._paste.add(data)
        if self._paste is not None and self._paste.over:
            text, behind = self._paste.parts()
            self._paste = None
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, text))
            self.feed(behind)

    def flush(self) -> None:
        """Handle what was held back: if nothing more comes, it was keys."""
        if len(self._half) <= TYPED_MARK_CHARS:
            half, self._half = self._half, ""
            super().feed(half)
        super().flush()

    def take_unfinished_paste(self) -> str:
        """Return the part of an unfinished paste that has arrived, for the next reader."""
        paste, half = self._paste, self._half
        self._paste, self._half = None, ""
        return half if paste is None else PASTE_START + paste.collected_text


class Keyboard:
    """Reads keys from `input`, which it shares with the prompts."""

    def __init__(self, input_: Vt100Input, printer: Printer, pasted: PasteMarks) -> None:
        self._input, self._printer, self._pasted = input_, printer, pasted
        self.parser = Parser(input_.vt100_parser.feed_key_callback)
        self._reader = _Reader(input_.fileno(), encoding=input_.stdin.encoding)
        input_.vt100_parser, input_.stdin_reader = self.parser, self._reader
        self._quiet = False
        self._escaped_at = -math.inf

    @contextmanager
    def suppress_echo(self) -> Generator[None]:
        """Echo nothing between prompts; `suppress_echo` may be within another one."""
        before = self._quiet
        with cbreak_mode(self._input.fileno()):
            self._quiet = True
            self.enable_paste_marks()
            try:
                yield
            finally:
                self._quiet = before
                if not before:
                    self._printer.send_sequence(_DISABLE_PASTE_MARKS)

    def note_escape(self) -> None:
        self._escaped_at = time.monotonic()

    def is_after_escape(self) -> bool:
        """Whether Esc has just stopped something; another Esc is then ignored."""
        return time.monotonic() - self._escaped_at < _ESC_AGAIN_SECONDS

    def enable_paste_marks(self) -> None:
        """Turn bracketed paste on again: a prompt turns it off when it closes."""
        if self._quiet:
            self._printer.send_sequence(_ENABLE_PASTE_MARKS)

    def has_unread_keys(self) -> bool:
        """Return True if something was typed that no prompt has read."""
        ahead = get_typeahead(self._input)
        store_typeahead(self._input, ahead)
        return bool(ahead) or is_readable(self._input.fileno())

    def discard_typed(self) -> bool:
        """Discard what was typed so far. Return False if there was nothing.

        The beginning of a paste is kept: its rest may still arrive, and would be taken for
        keys.
        """
        typed = False
        while text := self._reader.read():
            typed = True
            self.parser.feed(text)
        discard_input(self._input.fileno())
        ahead = (*self._input.read_keys(), *get_typeahead(self._input))
        return typed or bool(ahead)

    async def read_input(self) -> str:
        ahead = "".join(_to_text(press) for press in get_typeahead(self._input))
        come = ahead + self.parser.take_unfinished_paste()
        while True:
            before, paste = await self._read_until_paste(come)
            if before.endswith(_ESC_KEY):
                self.note_escape()
            if CTRL_C in before:  # as in any terminal, what was typed with it is gone
                return CTRL_C
            if paste is None:
                return clean(before)
            text, come = paste.parts()
            if typed := before + self._pasted.text_to_show(text, max_lines=1):
                if come:
                    self.pass_to_prompt(come)
                return clean(typed)

    async def _read_until_paste(self, typed: str) -> tuple[str, Paste | None]:
        """Return `typed` with what is typed next, and the paste that follows it."""
        paste = None
        try:
            typed = typed or await self._read_text()
            while (half := partial_mark_length(typed)) and (
                more := await self._read_rest_of_mark(half)
            ):
                typed += more
            typed, paste = split_at_paste(typed)
            while (
                paste is not None and not paste.over and (piece := await self._read_text())
            ):
                paste.add(piece)
        except anyio.get_cancelled_exc_class():
            self.pass_to_prompt(
                typed + (PASTE_START + paste.collected_text if paste else "")
            )
            raise
        return typed, paste

    async def _read_rest_of_mark(self, half: int) -> str:
        """Return the rest of a mark of which `half` characters arrived; "" if they were keys."""
        with anyio.move_on_after(ESC_ALONE if half <= TYPED_MARK_CHARS else None):
            return await self._read_text()
        return ""

    def pass_to_prompt(self, typed: str) -> None:
        """Pass the text to the next prompt."""
        self.parser.feed(typed)
        store_typeahead(self._input, self._input.read_keys())

    async def _read_text(self) -> str:
        """Return the next text; "" at the end of the input."""
        text = ""
        while not text:  # half a character is not text yet
            await wait_readable(self._input.fileno())
            text = self._reader.read(_READ_BYTES)
            if self._reader.gone:
                break
        return text


def _to_text(press: KeyPress) -> str:
    """Return what was typed for a key that no prompt has handled."""
    return (
        PASTE_START + press.data + _PASTE_END
        if press.key == Keys.BracketedPaste
        else press.data
    )


class _Reader(PosixStdinReader):
    """The input as text: half a character is kept until its rest arrives."""

    gone = False

    def read(self, count: int = 1024) -> str:
        if self.closed or not select.select([self.stdin_fd], [], [], 0)[0]:
            return ""
        try:
            data = os.read(self.stdin_fd, count)
            self.closed = not data
        except OSError:
            data = b""
        self.gone = not data
        return self._stdin_decoder.decode(data)
