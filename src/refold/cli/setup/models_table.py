"""Models as lines of a table or of JSON. Pure; `models` finds out what stands there.

Names come from servers: each is made visible before it is shown.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from refold.provider.prices import Rates
from refold.views.cells import cells, cut
from refold.views.escape import on_one_line

WIDTH = 80
UNKNOWN = "unknown"
_NARROWEST = 20  # of the column with the names
_FIGURES = 37  # what the others need, with the gaps


class Row(Struct, frozen=True):
    provider: str
    model: str
    source: str  # "live", "kept", "known", "local" or "set"
    window: int = 0  # tokens; 0: unknown
    rates: Rates | None = None
    marks: tuple[str, ...] = ()  # roles, and what else is to be said
    at: str = ""  # when what stands here was told, as ISO 8601

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """A heading and a line for each, or two where a name takes one for itself."""
    marks = max((cells(_marks(row)) for row in rows), default=0)
    names = max((cells(on_one_line(row.name)) for row in rows), default=0)
    room = min(max(names, 5), max(WIDTH - _FIGURES - marks, _NARROWEST))
    yield _line(room, "MODEL", ("WINDOW", "$ IN", "$ OUT", "FROM"), "")
    for row in rows:
        name = on_one_line(row.name)
        if cells(name) > room:
            yield cut(name, WIDTH)
            name = ""
        figures = (short(row.window), _dollars(row, "input"), _dollars(row, "output"))
        yield _line(room, name, (*figures, row.source), _marks(row))


def document(row: Row) -> dict[str, object]:
    """The same, whole, for a program: what is unknown is null."""
    steps = row.rates.steps if row.rates else ()
    return {
        "name": row.name,
        "provider": row.provider,
        "model": row.model,
        "window": row.window or None,
        "prices": [asdict(step) for step in steps] or None,
        "from": row.source,
        "at": row.at or None,
        "marks": list(row.marks),
    }


def short(tokens: int) -> str:
    """A number of tokens in at most five letters."""
    if not tokens:
        return UNKNOWN
    if tokens >= 999_500:
        return f"{tokens / 1e6:.3g}M"
    return f"{tokens / 1000:.0f}k" if tokens >= 1000 else str(tokens)


def _line(room: int, name: str, figures: tuple[str, str, str, str], marks: str) -> str:
    window, read, written, source = figures
    padded = name + " " * (room - cells(name))
    found = f"{padded}  {window:>7}  {read:>8}  {written:>8}  {source:<5} {marks}"
    return found.rstrip()


def _dollars(row: Row, kind: str) -> str:
    if row.rates is None:
        return UNKNOWN
    value: float = getattr(row.rates.first, kind)
    text = f"{value:.4f}".rstrip("0")
    whole, _, part = text.partition(".")
    more = "+" if len(row.rates.steps) > 1 else ""
    return f"{whole}.{part:0<2}{more}"


def _marks(row: Row) -> str:
    return " ".join(row.marks)
