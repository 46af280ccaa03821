"""Text of a model as rows of the transcript: a complete text, or one that is still streaming."""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Protocol

from refold.values.growing import Growing
from refold.views.escape import Visible, visible
from refold.views.markdown.renderer import MarkdownRenderer
from refold.views.styled import Line, Piece

MAX_CHARS_AT_ONCE = 10_000  # laid out while a frame is made: at most about 50 ms


class Layouts(Protocol):
    """Lays out what is large, later and elsewhere. Each key is pending once."""

    def request(self, key: Hashable, lay_out: Callable[[], None]) -> None: ...
    def is_pending(self, key: Hashable) -> bool: ...


def markdown_rows(text: str, width: int, *, links: bool) -> list[Line]:
    prose = MarkdownRenderer(width, links=links)
    return split_rows([*prose.add(visible(text.strip("\n"))), *prose.end()])


def split_rows(pieces: Iterable[Piece]) -> list[Line]:
    """Split pieces at line ends into rows."""
    rows: list[list[Piece]] = [[]]
    for style, text in pieces:
        first, *more = text.split("\n")
        if first:
            rows[-1].append((style, first))
        for part in more:
            rows.append([(style, part)] if part else [])
    if not rows[-1]:
        rows.pop()
    return [tuple(row) for row in rows]


class StreamRows:
    """Streaming text: finished rows are laid out once."""

    def __init__(self, width: int, *, links: bool) -> None:
        self._prose = MarkdownRenderer(width, links=links)
        self._visible = Visible()
        self._seen = 0
        self._rows: list[Line] = []

    def can_extend_to(self, text: Growing) -> bool:
        return len(text) >= self._seen

    def rows_of(self, text: Growing, layouts: Layouts | None) -> list[Line]:
        if layouts and len(text) - self._seen > MAX_CHARS_AT_ONCE:
            layouts.request(id(self), partial(self._extend_to, text))
        if layouts and layouts.is_pending(id(self)):
            return [*self._rows]
        self._extend_to(text)
        return [*self._rows, *split_rows(self._prose.preview_end())]

    def _extend_to(self, text: Growing) -> None:
        """Lay out what is new in the text; a worker thread may do that."""
        new = text.after(self._seen)
        if not self._seen:
            new = new.lstrip("\n")
        if new:
            self._rows += split_rows(self._prose.add(self._visible.add(new)))
        self._seen = len(text)
