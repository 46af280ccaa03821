"""Keys out of what a terminal sends, also when that is a paste of megabytes."""

from collections.abc import Callable

from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

_START, _END = "\x1b[200~", "\x1b[201~"


class Paste:
    """What comes between two marks, in pieces: no piece is looked through twice."""

    def __init__(self, begun: str = "") -> None:
        self._pieces, self._last = list[str](), ""
        self.over = False
        self.add(begun)

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        end = self._last + piece
        self._last = end[-len(_END) :]
        self.over = self.over or _END in end

    @property
    def whole(self) -> str:
        """All that came, the end mark and what is behind it too."""
        return "".join(self._pieces)

    @property
    def text(self) -> str:
        return self.whole.partition(_END)[0]


def begun(typed: str) -> tuple[str, Paste | None]:
    """What was typed before a paste, and that paste."""
    before, mark, rest = typed.partition(_START)
    return before, Paste(rest) if mark else None


class Parser(Vt100Parser):
    """Gives the line editor a paste once all of it is there.

    `fed` counts what came since somebody set it to zero.
    """

    def __init__(self, on_key: Callable[[KeyPress], None]) -> None:
        super().__init__(on_key)
        self._paste = Paste()
        self.fed = 0

    def feed(self, data: str) -> None:
        self.fed += 1
        if not self._in_bracketed_paste:
            super().feed(data)
            return
        self._paste.add(data)
        if self._paste.over:
            whole, self._paste = self._paste.whole, Paste()
            super().feed(whole)
