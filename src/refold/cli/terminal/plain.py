"""Reading whole lines, from a dumb terminal, a screen reader or a pipe.

Nothing is written but the prompt, and nothing is assumed of the terminal. A
backslash at the end of a line joins the next one to it.
"""

import codecs
import os
from collections.abc import Callable

import anyio
from anyio import to_thread

from refold.cli.terminal.keys import unseen
from refold.cli.terminal.reading import Key, Later
from refold.cli.terminal.screen import Screen
from refold.views.styled import Line


class Plain:
    """Reads from the file descriptor `source`."""

    lively = False

    def __init__(self, screen: Screen, source: int = 0) -> None:
        self._screen, self._source = screen, source
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._echoed = os.isatty(source)
        self._read = ""
        self._over = False
        self._asking: anyio.CancelScope | None = None

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
        return await self._line(prompt)

    async def aside(self, prompt: Line, text: str = "") -> str | Later | Key:
        return await self._line(prompt)

    async def choice(self, prompt: Line, keys: str) -> str | Key:
        found = await self._line(prompt)
        if isinstance(found, Key):
            return found
        first = found.strip().lower()[:1]
        return first if first and first in keys else ""

    async def secret(self, prompt: Line) -> str | Key:
        with unseen(self._source):
            found = await self._line(prompt)
        self._screen.say("")
        return found

    def interrupt(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def redraw(self) -> None:
        """What is printed stays."""

    async def _line(self, prompt: Line) -> str | Key:
        self._screen.fresh()
        self._screen.pieces(prompt)
        with anyio.CancelScope() as self._asking:
            while "\n" not in self._read and not self._over:
                await self._more()
        interrupted, self._asking = self._asking.cancelled_caught, None
        if interrupted:
            self._screen.fresh()
            return Key.CTRL_C
        if self._echoed:
            self._screen.typed()
        else:
            self._screen.fresh()
        if not self._read:
            return Key.CTRL_D
        line, _, self._read = self._read.partition("\n")
        return line.removesuffix("\r")

    async def _more(self) -> None:
        try:
            await anyio.wait_readable(self._source)
            data = os.read(self._source, 65_536)
        except PermissionError:  # a file is always readable, and cannot be waited for
            data = await to_thread.run_sync(os.read, self._source, 65_536)
        except OSError:  # the terminal is gone
            data = b""
        self._over = not data
        self._read += self._decoder.decode(data, final=not data)
