"""The keyboard while the session works, where there is a line editor.

Pastes come between marks then too, or each of their lines would be sent by itself.
"""

import codecs
import os
from collections.abc import Generator
from contextlib import contextmanager

from refold.cli.terminal.keys import one_by_one, readable
from refold.cli.terminal.line_editor.parser import begun
from refold.cli.terminal.line_editor.pasting import Pasted
from refold.cli.terminal.paper import Paper
from refold.cli.terminal.reading import CTRL_C

_AT_ONCE = 65_536  # bytes
_MARKED, _BARE = "\x1b[?2004h", "\x1b[?2004l"


class Keyboard:
    """Reads from the file descriptor `source`."""

    def __init__(self, source: int, paper: Paper, pasted: Pasted) -> None:
        self._source, self._paper, self._pasted = source, paper, pasted
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._quiet = False

    @contextmanager
    def quiet(self) -> Generator[None]:
        with one_by_one(self._source):
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

    async def typed(self) -> str:
        before, paste = begun(typed := await self._read())
        while paste is not None and not paste.over and (piece := await self._read()):
            paste.add(piece)
        if CTRL_C in before:  # as in any terminal, what was typed with it is gone
            return CTRL_C
        if paste is None:
            return typed
        return before + self._pasted.shown(paste.text, most=1)

    async def _read(self) -> str:
        found = ""
        while not found:  # half a letter is none
            await readable(self._source)
            try:
                data = os.read(self._source, _AT_ONCE)
            except OSError:
                data = b""
            if not data:
                return ""
            found = self._decoder.decode(data)
        return found
