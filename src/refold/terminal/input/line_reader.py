"""Reads whole lines, from a dumb terminal, a screen reader or a pipe.

It writes only the prompt and assumes nothing of the terminal, which echoes and edits the line
itself. A backslash at the end of a line continues it on the next one; Esc alone on a line is that
key.
"""

import codecs
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import anyio
from anyio import to_thread

from refold.terminal.input.editor import edited
from refold.terminal.input.keys import (
    canonical_mode,
    cbreak_mode,
    discard_input,
    no_echo,
    read_key,
    unread_input,
    wait_readable,
)
from refold.terminal.input.reader import Key, QueuedMessage
from refold.terminal.screen.printer import Printer
from refold.views.styled import Line

_ESC = "\x1b"


class LineReader:
    """Reads from the file descriptor `source`."""

    lively = False

    def __init__(self, printer: Printer, source: int = 0) -> None:
        self._printer, self._source = printer, source
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.hears = os.isatty(source)
        self._read = ""
        self._over = False
        self._asking: anyio.CancelScope | None = None
        self._prompt: Line = ()
        self._set_aside = False

    async def words(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        lines = list[str]()
        while True:
            found = await self._line((("plain", "  "),) if lines else prompt())
            if isinstance(found, Key):
                return found
            if not found.endswith("\\"):
                return "\n".join([*lines, found])
            lines.append(found[:-1])

    async def brief(self, prompt: Line, text: str = "") -> str | Key:
        found = await self._line((*prompt, ("plain", text)) if text else prompt)
        if isinstance(found, Key):
            return found
        return Key.ESC if found.strip(" ") == _ESC else text + found

    async def aside(self, prompt: Line, text: str = "") -> str | QueuedMessage | Key:
        return await self.brief(prompt, text)

    async def choice(self, prompt: Line, keys: str) -> str | Key:
        if self.hears:  # a line that was typed before the question is no answer to it
            discard_input(self._source)
            self._read = ""
        found = await self.brief(prompt)
        if isinstance(found, Key):
            return found
        first = found.strip().lower()[:1]
        return first if first and first in keys else ""

    async def secret(self, prompt: Line) -> str | Key:
        found = await self._line(prompt, no_echo)
        if self.hears:
            self._printer.say("")
        return found

    async def edit(self, text: str, command: tuple[str, ...], name: str) -> str:
        return await edited(text, command, name)

    @contextmanager
    def quiet(self) -> Generator[None]:
        with cbreak_mode(self._source) if self._printer.look.moves else nullcontext():
            try:
                yield
            finally:
                self._take_in()

    async def typed(self) -> str:
        if not self.hears:  # a script's lines are answers, and wait for their questions
            await anyio.sleep_forever()
        if self._printer.look.moves:
            taken, self._read = self._read, ""
            return taken or await read_key(self._source)
        await self._whole_line()
        line, end, self._read = self._read.partition("\n")
        return _ESC if line.strip(" ") == _ESC else line + end

    def interrupt(self) -> bool:
        if self._asking is None:
            return False
        self._asking.cancel()
        return True

    def put_aside(self) -> bool:
        if self._asking is None:
            return False
        self._set_aside = True  # a half-typed line stays in the terminal
        self._asking.cancel()
        return True

    def redraw(self) -> None:
        """What is printed stays: the question stands there once more."""
        if self._asking is not None:
            self._ask()

    def vi(self, on: bool | None = None) -> None:
        """The terminal edits the line."""

    async def _line(
        self,
        prompt: Line,
        seen: Callable[[int], AbstractContextManager[None]] = canonical_mode,
    ) -> str | Key:
        self._prompt = prompt
        self._take_in()
        self._ask()
        with seen(self._source), anyio.CancelScope() as self._asking:
            try:
                await self._whole_line()
            except anyio.get_cancelled_exc_class():
                self._printer.fresh()
                raise
        interrupted, self._asking = self._asking.cancelled_caught, None
        aside, self._set_aside = self._set_aside, False
        if interrupted and aside:
            self._printer.fresh()
            return Key.ASIDE
        if interrupted:
            if self.hears:  # half a line that it was typed in
                discard_input(self._source)
                self._read = ""
            return Key.CTRL_C
        if self.hears and "\n" in self._read:  # Ctrl+D leaves the cursor in the line
            self._printer.typed()
        else:
            self._printer.fresh()
        if not self._read:
            return Key.CTRL_D
        line, _, self._read = self._read.partition("\n")
        return line.removesuffix("\r")

    def _ask(self) -> None:
        self._printer.fresh()
        sign = self._printer.look.sign("prompt")
        self._printer.pieces(
            (style, text.replace("›", sign)) for style, text in self._prompt
        )

    def _take_in(self) -> None:
        self._read += self._decoder.decode(unread_input(self._source))

    async def _whole_line(self) -> None:
        while "\n" not in self._read and not self._over:
            await self._more()

    async def _more(self) -> None:
        try:
            await wait_readable(self._source)
            data = os.read(self._source, 65_536)
        except PermissionError:  # a file is always readable, and cannot be waited for
            data = await to_thread.run_sync(os.read, self._source, 65_536)
        except OSError:  # the terminal is gone
            data = b""
        self._over = not data
        self._read += self._decoder.decode(data, final=not data)
