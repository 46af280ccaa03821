"""Lays out Markdown of a model as rows of the transcript, complete or while it arrives."""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Protocol

from refold.values.growing import Growing
from refold.views.escape import Visible, visible
from refold.views.markdown.renderer import MarkdownRenderer
from refold.views.styled import Line, Piece

# laid out while a frame is made, which takes at most about 50 ms
MAX_CHARS_AT_ONCE = 10_000


class Layouts(Protocol):
    """Performs layouts of large items in another thread.

    A request is ignored while a request with the same `key` waits.
    """

    def request(self, key: Hashable, lay_out: Callable[[], None]) -> None:
        """Call `lay_out` later in a thread. Do nothing if this key is requested already."""
        ...

    def is_pending(self, key: Hashable) -> bool:
        """Return whether a request with this key waits or is being performed."""
        ...


def markdown_rows(text: str, width: int, *, links: bool) -> list[Line]:
    prose = MarkdownRenderer(width, links=links)
    return split_rows([*prose.add(visible(text.strip("\n"))), *prose.end()])


def split_rows(pieces: Iterable[Piece]) -> list[Line]:
    """Return the pieces as rows, split at line ends."""
    rows: list[list[Piece]] = [[]]
    for style, text in pieces:
        first, *others = text.split("\n")
        if first:
            rows[-1].append((style, first))
        for part in others:
            rows.append([(style, part)] if part else [])
    if not rows[-1]:  # the last line end begins no row
        rows.pop()
    return [tuple(row) for row in rows]


class StreamRows:
    """The rows of text that is arriving. Finished rows are laid out only once."""

    def __init__(self, width: int, *, links: bool) -> None:
        self._prose = MarkdownRenderer(width, links=links)
        self._visible = Visible()
        self._laid_out_chars = 0
        self._rows: list[Line] = []

    def can_extend_to(self, text: Growing) -> bool:
        """Return whether `text` may continue the earlier text, because it is not shorter."""
        return len(text) >= self._laid_out_chars

    def rows_of(self, text: Growing, layouts: Layouts | None) -> list[Line]:
        """Return the rows of the text, without those that another thread is still laying out."""
        new_chars = len(text) - self._laid_out_chars
        if layouts is not None:
            if new_chars > MAX_CHARS_AT_ONCE:
                layouts.request(id(self), partial(self._extend_to, text))
            if layouts.is_pending(id(self)):
                return [*self._rows]
        self._extend_to(text)
        return [*self._rows, *split_rows(self._prose.preview_end())]

    def _extend_to(self, text: Growing) -> None:
        """Lay out the new end of the text. This may run in a worker thread."""
        new = text.after(self._laid_out_chars)
        if not self._laid_out_chars:
            new = new.lstrip("\n")
        if new:
            self._rows += split_rows(self._prose.add(self._visible.add(new)))
        self._laid_out_chars = len(text)
