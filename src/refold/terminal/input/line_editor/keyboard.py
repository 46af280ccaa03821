"""Reads the keyboard during work, on a terminal with a line editor.

Bracketed paste is on then, too; otherwise each pasted line would be sent separately. If a
prompt opens or closes in the middle of a paste, the part already read is passed to the next
reader.
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

from refold.console.keyboard_modes import (
    cbreak_mode,
    discard_input,
    is_readable,
    wait_readable,
)
from refold.console.printer import Printer
from refold.console.reader import CTRL_C
from refold.terminal.input.line_editor.drawing import ESC_ALONE_SECONDS
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.values.text import clean

_READ_BYTES = 65_536
_ESC_KEY = "\x1b"
_ESC_AGAIN_SECONDS = 1.0
_ENABLE_PASTE_MARKS, _DISABLE_PASTE_MARKS = "\x1b[?2004h", "\x1b[?2004l"
PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
# A person can type the first character of a mark, which is Esc. No action is bound to Alt+[.
TYPED_MARK_CHARS = 1


# Splits terminal input into keys and pastes, even if a paste has megabytes.
class Paste:
    """A paste that arrives in pieces, up to its end mark.

    `over` is true once the end mark has arrived. Each piece is searched for the end mark only
    once.
    """

    def __init__(self, begun: str = "") -> None:
        self._pieces = list[str]()
        self._last = ""  # the end of the last piece, in which an end mark may begin
        self.over = False
        self.add(begun)

    def add(self, piece: str) -> None:
        """Add a piece. The end mark may be split between this piece and those before it."""
        self._pieces.append(piece)
        searched = self._last + piece
        self._last = searched[-len(_PASTE_END) :]
        self.over = self.over or _PASTE_END in searched

    @property
    def collected_text(self) -> str:
        """All pieces so far, including the end mark and the text after it."""
        return "".join(self._pieces)

    def parts(self) -> tuple[str, str]:
        """Return the pasted text, and the text that was typed after it."""
        text, _, rest = self.collected_text.partition(_PASTE_END)
        return text, rest


def split_at_paste(typed: str) -> tuple[str, Paste | None]:
    """Return the text before the first paste in `typed`, and that paste (None if there is
    none).
    """
    before, mark, rest = typed.partition(PASTE_START)
    return before, Paste(rest) if mark else None


def partial_mark_length(typed: str) -> int:
    """Return how many characters at the end of `typed` may begin a start mark of a paste."""
    lengths = range(len(PASTE_START) - 1, 0, -1)
    return next((n for n in lengths if typed.endswith(PASTE_START[:n])), 0)


class Parser(Vt100Parser):
    """A parser of terminal input that reports each paste as one key, when it is complete.

    `fed` is the number of calls of `feed` since a reader last set it to 0.
    """

    def __init__(self, on_key: Callable[[KeyPress], None]) -> None:
        super().__init__(on_key)
        self._held_back = ""  # the end of the input if it may begin a start mark
        self._paste: Paste | None = None  # the unfinished paste
        self.fed = 0  # how many pieces of input the open prompt has received

    def feed(self, data: str) -> None:
        """Parse input: keys at once, a paste when its end mark has arrived.

        The end of the input is held back if it may be the beginning of a start mark.
        """
        self.fed += 1
        if self._paste is None:
            before, self._paste = split_at_paste(self._held_back + data)
            partial_length = partial_mark_length(before) if self._paste is None else 0
            key_count = len(before) - partial_length
            self._held_back = before[key_count:]
            super().feed(before[:key_count])
        else:
            self._paste.add(data)
        if self._paste is not None and self._paste.over:
            text, rest = self._paste.parts()
            self._paste = None
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, text))
            self.feed(rest)

    def flush(self) -> None:
        """End the input for now: an Esc that was held back is a key.

        A longer beginning of a start mark is still held back until its rest arrives.
        """
        if len(self._held_back) <= TYPED_MARK_CHARS:
            held_back, self._held_back = self._held_back, ""
            super().feed(held_back)
        super().flush()

    def take_unfinished_paste(self) -> str:
        """Return the part of an unfinished paste that has arrived, and remove it from the
        parser.
        """
        paste, held_back = self._paste, self._held_back
        self._paste, self._held_back = None, ""
        return held_back if paste is None else PASTE_START + paste.collected_text


class Keyboard:
    """Reads keys during work, from the input that prompts use at other times."""

    def __init__(self, input_: Vt100Input, printer: Printer, pasted: PasteMarks) -> None:
        self._input, self._printer, self._pasted = input_, printer, pasted
        self.parser = Parser(input_.vt100_parser.feed_key_callback)
        self._reader = _Reader(input_.fileno(), encoding=input_.stdin.encoding)
        input_.vt100_parser, input_.stdin_reader = self.parser, self._reader
        self._suppresses_echo = False
        self._escaped_at = -math.inf

    @contextmanager
    def suppress_echo(self) -> Generator[None]:
        """Prevent the terminal from echoing keys while no prompt is open. Blocks may be nested."""
        was_suppressing = self._suppresses_echo
        with cbreak_mode(self._input.fileno()):
            self._suppresses_echo = True
            self.enable_paste_marks()
            try:
                yield
            finally:
                self._suppresses_echo = was_suppressing
                if not was_suppressing:
                    self._printer.send_sequence(_DISABLE_PASTE_MARKS)

    def note_escape(self) -> None:
        self._escaped_at = time.monotonic()

    def is_after_escape(self) -> bool:
        """Return whether Esc was pressed so recently that another Esc should be ignored."""
        return time.monotonic() - self._escaped_at < _ESC_AGAIN_SECONDS

    def enable_paste_marks(self) -> None:
        """Turn on bracketed paste again, which each prompt turns off when it closes."""
        if self._suppresses_echo:
            self._printer.send_sequence(_ENABLE_PASTE_MARKS)

    def has_unread_keys(self) -> bool:
        """Return whether keys were pressed that nothing has read yet."""
        keys = get_typeahead(self._input)
        store_typeahead(self._input, keys)  # `get_typeahead` has removed them
        return bool(keys) or is_readable(self._input.fileno())

    def discard_typed(self) -> bool:
        """Discard the keys that were pressed and not read. Return False if there were none.

        The beginning of a paste is not discarded: otherwise its rest would be taken for keys.
        """
        has_text = False
        while text := self._reader.read():
            has_text = True
            self.parser.feed(text)  # the parser keeps the beginning of a paste
        discard_input(self._input.fileno())
        keys = (*self._input.read_keys(), *get_typeahead(self._input))
        return has_text or bool(keys)

    async def read_input(self) -> str:
        """Return the next text or key that is typed.

        If Ctrl+C is among the input, return only that. A paste is returned as its text or its mark;
        input after it is passed to the next prompt.
        """
        typed_ahead = "".join(_to_text(press) for press in get_typeahead(self._input))
        unread = typed_ahead + self.parser.take_unfinished_paste()
        while True:
            before, paste = await self._read_until_paste(unread)
            if before.endswith(_ESC_KEY):
                self.note_escape()
            # as in any terminal, Ctrl+C discards what was typed with it
            if CTRL_C in before:
                return CTRL_C
            if paste is None:
                return clean(before)
            pasted_text, unread = paste.parts()
            typed = before + self._pasted.text_to_show(pasted_text, max_lines=1)
            if typed:  # otherwise an empty paste
                if unread:
                    self.pass_to_prompt(unread)
                return clean(typed)

    async def _read_until_paste(self, typed: str) -> tuple[str, Paste | None]:
        """Continue to read after `typed`. Return the text before a paste, and the paste.

        Return None in place of the paste if there is none. If this method is cancelled, what
        was read is passed to the next prompt.
        """
        paste = None
        try:
            typed = typed or await self._read_text()
            while held_back := partial_mark_length(typed):
                rest = await self._read_rest_of_mark(held_back)
                if not rest:
                    break
                typed += rest
            typed, paste = split_at_paste(typed)
            while paste is not None and not paste.over:
                piece = await self._read_text()
                if not piece:
                    break
                paste.add(piece)
        except anyio.get_cancelled_exc_class():
            if paste is not None:
                typed += PASTE_START + paste.collected_text
            self.pass_to_prompt(typed)
            raise
        return typed, paste

    async def _read_rest_of_mark(self, held_back: int) -> str:
        """Return the text after a possible beginning of a start mark.

        `held_back` is the number of characters of this beginning. Return "" if nothing
        follows: then these characters were keys.
        """
        # A person can have typed a beginning this short. After a longer one, a rest always comes.
        seconds = ESC_ALONE_SECONDS if held_back <= TYPED_MARK_CHARS else None
        with anyio.move_on_after(seconds):
            return await self._read_text()
        return ""

    def pass_to_prompt(self, typed: str) -> None:
        """Make the next prompt read this text first."""
        self.parser.feed(typed)
        store_typeahead(self._input, self._input.read_keys())

    async def _read_text(self) -> str:
        """Wait for text and return it; "" at the end of the input."""
        text = ""
        while not text:  # part of a character is not text yet
            await wait_readable(self._input.fileno())
            text = self._reader.read(_READ_BYTES)
            if self._reader.gone:
                break
        return text


def _to_text(press: KeyPress) -> str:
    """Return the text that the terminal sent for a key press."""
    if press.key == Keys.BracketedPaste:
        return PASTE_START + press.data + _PASTE_END
    return press.data


class _Reader(PosixStdinReader):
    """Decodes the input. An incomplete character is held back until its rest arrives."""

    gone = False  # whether the input has ended

    def read(self, count: int = 1024) -> str:
        """Return the input that is available now, or "" if there is none or it has ended."""
        if self.closed:
            return ""
        readable, _, _ = select.select([self.stdin_fd], [], [], 0)
        if not readable:
            return ""
        try:
            data = os.read(self.stdin_fd, count)
            self.closed = not data
        except OSError:
            data = b""
        self.gone = not data
        return self._stdin_decoder.decode(data)
