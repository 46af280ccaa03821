"""Prints text and thinking of the model while they arrive.

Printed text stays. Thinking is shown in the status line and stays as one line when it ends. This
module knows only what was printed of the present response; `transcript` prints the rest of a turn.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from refold.client.types import Frame
from refold.console.markdown import renderer_for
from refold.console.printer import Printer
from refold.terminal.screen.status_line import StatusLine
from refold.values.live import TextCame
from refold.views.escape import Visible, visible
from refold.views.styled import Piece
from refold.views.wrap import cells, cut

if TYPE_CHECKING:
    from refold.views.markdown.renderer import MarkdownRenderer

_THINKING_HINT = " /expand thinking"
_MAX_PART_CHARS = 8_000  # laid out and printed at once: at most about 50 ms


def split_text(frame: Frame) -> Iterator[Frame]:
    """Yield the frame, or the parts of a text that came as a whole.

    The printed text is the same: its layout does not depend on how it was cut.
    """
    item = frame.item
    if not isinstance(item, TextCame) or len(item.text) <= _MAX_PART_CHARS:
        yield frame
        return
    for start in range(0, len(item.text), _MAX_PART_CHARS):
        text = item.text[start : start + _MAX_PART_CHARS]
        yield Frame(frame.seq, frame.n, replace(item, text=text))


class StreamedText:
    def __init__(self, printer: Printer, doing: StatusLine) -> None:
        self._printer, self._doing = printer, doing
        self._said = list[str]()  # of the current response, in pieces as they arrived
        self._thought = list[str]()
        self._thinking = list[str]()  # of the thinking that is not printed yet
        self._prose: MarkdownRenderer | None = None
        self._visible = Visible()
        self._parted = False  # whether something else was printed within this text

    def begin_response(self) -> None:
        """Begin another response, of which nothing is printed yet."""
        self._said.clear()
        self._thought.clear()

    def add_text(self, text: str) -> bool:
        """Add a piece of the current response. Return True if it begins a text."""
        self._said.append(text)
        return self.print_text(text)

    def add_thinking(self, text: str) -> None:
        self._thought.append(text)
        self.show_thinking(text)

    def show_thinking(self, text: str) -> None:
        self._thinking.append(text)
        last = "".join(self._thinking[-50:])[-300:]
        self._doing.set_output("thinking", " ".join(last.split())[-60:])

    def print_text(self, text: str) -> bool:
        """Print text of the response. Return True if it begins a text."""
        begins = self._prose is None
        if self._prose is None:
            if not text.strip():
                return False
            self._close_thinking()
            self._printer.ensure_blank_line()
            self._doing.set_activity("")
            self._prose = renderer_for(self._printer)
            text = text.lstrip("\n")
        self._print_pieces(self._prose.add(self._visible.add(text)))
        self._doing.set_unprinted_text(self._prose.pending_text)
        return begins

    def unprinted_text(self, text: str) -> str:
        """Return the part of the complete response text that was not printed yet."""
        return _unprinted_part(self._said, text)

    def unprinted_thinking(self, text: str) -> str:
        return _unprinted_part(self._thought, text)

    def close(self) -> bool:
        """End the current text and thinking. Return True if thinking was printed."""
        thought = self._close_thinking()
        self.close_text()
        return thought

    def prepare_for_other_output(self) -> bool:
        """Prepare for other output; text printed in whole rows continues below it.

        Ending it here would cut a word in two, and the rest of a code block would not be
        code.
        """
        if self._prose is None or not self._prose.whole_rows:
            return self.close()
        self._parted = True
        return self._close_thinking()

    def close_text(self) -> None:
        if self._prose is not None:
            rest = self._prose.add(self._visible.end()) + self._prose.end()
            self._print_pieces(rest)
            self._printer.start_line()
            self._prose, self._parted = None, False
            self._doing.set_unprinted_text("")

    def _print_pieces(self, pieces: list[Piece]) -> None:
        text = "".join(text for _, text in pieces)
        if text and self._parted:
            self._parted = False
            if not text.startswith("\n"):
                self._printer.ensure_blank_line()
        self._printer.print_pieces(pieces)

    def _close_thinking(self) -> bool:
        words = " ".join(visible("".join(self._thinking)).split())
        self._thinking.clear()
        self._doing.forget_output("thinking")
        if words:
            sign = self._printer.capabilities.sign("thought")
            self._printer.ensure_blank_line()
            row, width = f"{sign} {words}", self._printer.free_columns
            if cells(row) > width:
                row = cut(row, width - cells(_THINKING_HINT)) + _THINKING_HINT
            self._printer.print_text(row, "dim")
        return bool(words)


def _unprinted_part(pieces: list[str], text: str) -> str:
    """Return the part of `text` that was not printed with these pieces.

    Pieces beyond `text` stay in the list, for the next text. Nothing is returned if the
    printed text differs, as it does after secrets were masked.
    """
    before, text = "".join(pieces).lstrip(), text.lstrip()
    pieces.clear()
    if before.startswith(text):
        pieces.append(before[len(text) :])
        return ""
    return text[len(before) :] if text.startswith(before) else ""
