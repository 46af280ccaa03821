"""The keyboard while the session works, where there is a line editor.

Pastes come between marks then too, or each of their lines would be sent by itself. One
that is under way when a prompt comes or goes is read by both: whoever has read its
beginning hands it on with all that came of it.
"""

import os
import select
from collections.abc import Generator
from contextlib import contextmanager

import anyio
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.typeahead import clear_typeahead, store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input

from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.keyboard.keys import forget, one_by_one, readable
from refold.cli.terminal.keyboard.line_editor.drawing import ESC_ALONE
from refold.cli.terminal.keyboard.line_editor.parser import (
    BY_HAND,
    START,
    Parser,
    Paste,
    begun,
    half_a_mark,
)
from refold.cli.terminal.keyboard.line_editor.pasting import Pasted
from refold.cli.terminal.reading import CTRL_C
from refold.values.clean import clean

_AT_ONCE = 65_536  # bytes
_MARKED, _BARE = "\x1b[?2004h", "\x1b[?2004l"


class Keyboard:
    """What comes from `input`, whose prompts it shares it with."""

    def __init__(self, input_: Vt100Input, paper: Paper, pasted: Pasted) -> None:
        self._input, self._paper, self._pasted = input_, paper, pasted
        self.parser = Parser(input_.vt100_parser.feed_key_callback)
        self._reader = _Reader(input_.fileno(), encoding=input_.stdin.encoding)
        input_.vt100_parser, input_.stdin_reader = self.parser, self._reader
        self._quiet = False

    @contextmanager
    def quiet(self) -> Generator[None]:
        with one_by_one(self._input.fileno()):
            self._quiet = True
            self.marking_pastes()
            try:
                yield
            finally:
                self._quiet = False
                self._paper.ring(_BARE)

    def marking_pastes(self) -> None:
        """A prompt puts an end to that with itself: from here on again."""
        if self._quiet:
            self._paper.ring(_MARKED)

    def forget(self) -> None:
        """Throw away what was typed by now, but for the beginning of a paste: its rest may
        still come, and must not be taken for keys."""
        while typed := self._reader.read():
            self.parser.feed(typed)
        forget(self._input.fileno())
        self._input.read_keys()
        clear_typeahead(self._input)

    async def typed(self) -> str:
        come = self.parser.taken()
        while True:
            before, paste = await self._come(come)
            if CTRL_C in before:  # as in any terminal, what was typed with it is gone
                return CTRL_C
            if paste is None:
                return clean(before)
            text, come = paste.parts()
            if typed := before + self._pasted.shown(text, most=1):
                if come:
                    self._hand_on(come)
                return clean(typed)

    async def _come(self, come: str) -> tuple[str, Paste | None]:
        """What is typed next, behind what has `come`, and the paste that it goes on with."""
        paste = None
        try:
            come = come or await self._read()
            while (half := half_a_mark(come)) and (more := await self._rest_of(half)):
                come += more
            come, paste = begun(come)
            while paste is not None and not paste.over and (piece := await self._read()):
                paste.add(piece)
        except anyio.get_cancelled_exc_class():
            self._hand_on(come + (START + paste.whole if paste else ""))
            raise
        return come, paste

    async def _rest_of(self, half: int) -> str:
        """What follows so many letters of a mark; "" if they were a key."""
        with anyio.move_on_after(ESC_ALONE if half <= BY_HAND else None):
            return await self._read()
        return ""

    def _hand_on(self, typed: str) -> None:
        """The next prompt begins with it."""
        self.parser.feed(typed)
        store_typeahead(self._input, self._input.read_keys())

    async def _read(self) -> str:
        """ "" where nothing will ever come any more."""
        found = ""
        while not found:  # half a letter is none
            await readable(self._input.fileno())
            found = self._reader.read(_AT_ONCE)
            if self._reader.gone:
                break
        return found


class _Reader(PosixStdinReader):
    """What comes as text: half a letter is kept for whoever reads its rest."""

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
