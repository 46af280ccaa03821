"""Keys out of what a terminal sends, also when that is a paste of megabytes."""

from collections.abc import Callable

from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

START, _END = "\x1b[200~", "\x1b[201~"
BY_HAND = 2  # letters of a mark that a person may have typed: Esc, or Alt and [


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

    def parts(self) -> tuple[str, str]:
        """What was pasted, and what was typed behind it."""
        text, _, behind = self.whole.partition(_END)
        return text, behind


def begun(typed: str) -> tuple[str, Paste | None]:
    """What was typed before a paste, and that paste."""
    before, mark, rest = typed.partition(START)
    return before, Paste(rest) if mark else None


def half_a_mark(typed: str) -> int:
    """How many letters at the end may be the beginning of a paste's first mark."""
    lengths = range(len(START) - 1, 0, -1)
    return next((n for n in lengths if typed.endswith(START[:n])), 0)


class Parser(Vt100Parser):
    """Gives the line editor a paste once all of it is there.

    `fed` counts what came since somebody set it to zero.
    """

    def __init__(self, on_key: Callable[[KeyPress], None]) -> None:
        super().__init__(on_key)
        self._half = ""  # of the first mark, perhaps
        self._paste: Paste | None = None
        self.fed = 0

    def feed(self, data: str) -> None:
        self.fed += 1
        if self._paste is None:
            before, self._paste = begun(self._half + data)
            keys = len(before) - (0 if self._paste else half_a_mark(before))
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
        """Nothing more comes for now: what a person may have typed is whole."""
        if len(self._half) <= BY_HAND:
            half, self._half = self._half, ""
            super().feed(half)
        super().flush()

    def taken(self) -> str:
        """What has come of a paste that is not all there: whoever reads on goes on with it."""
        paste, half = self._paste, self._half
        self._paste, self._half = None, ""
        return half if paste is None else START + paste.whole
