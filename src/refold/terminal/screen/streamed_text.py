"""Prints the text and thinking of a model's response while they arrive.

Printed text is never erased. Thinking is shown in the status line, and is printed as one line
when it ends. `transcript` prints the rest of a turn.
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

# Of thinking, the status line shows this many characters. They are taken from more characters
# and pieces than usually needed, because blanks are joined; older thinking is not read again.
_MAX_SHOWN_CHARS = 60
_MAX_SOURCE_CHARS = 300
_MAX_SHOWN_PIECES = 50
_THINKING_HINT = " /expand thinking"
# laid out and printed at the same time, which takes at most about 50 ms
_MAX_PART_CHARS = 8_000


def split_text(frame: Frame) -> Iterator[Frame]:
    """Yield the frame, or, if its text is very long, several frames with a part of the text
    each.

    The result on the screen is the same.
    """
    item = frame.item
    if not isinstance(item, TextCame) or len(item.text) <= _MAX_PART_CHARS:
        yield frame
        return
    for start in range(0, len(item.text), _MAX_PART_CHARS):
        text = item.text[start : start + _MAX_PART_CHARS]
        yield Frame(frame.seq, frame.n, replace(item, text=text))


class StreamedText:
    """The text and thinking of the current response, of which a part is already printed."""

    def __init__(self, printer: Printer, status_line: StatusLine) -> None:
        self._printer, self._status_line = printer, status_line
        # The pieces of the current response, as they arrived.
        self._text_pieces, self._thinking_pieces = list[str](), list[str]()
        self._pending_thinking = list[str]()  # the thinking that is not printed yet
        self._prose: MarkdownRenderer | None = None
        self._visible = Visible()
        self._is_interrupted = False  # whether something else was printed within this text

    def begin_response(self) -> None:
        """Begin a new response."""
        self._text_pieces.clear()
        self._thinking_pieces.clear()

    def add_text(self, text: str) -> bool:
        """Add and print a piece of the response's text.

        Return True if the piece is the first that is printed.
        """
        self._text_pieces.append(text)
        return self.print_text(text)

    def add_thinking(self, text: str) -> None:
        """Add a piece of the response's thinking, and show it in the status line."""
        self._thinking_pieces.append(text)
        self.show_thinking(text)

    def show_thinking(self, text: str) -> None:
        """Add thinking that is not printed yet, and show its last words in the status line."""
        self._pending_thinking.append(text)
        pieces = self._pending_thinking[-_MAX_SHOWN_PIECES:]
        end = "".join(pieces)[-_MAX_SOURCE_CHARS:]
        words = " ".join(end.split())
        self._status_line.set_output("thinking", words[-_MAX_SHOWN_CHARS:])

    def print_text(self, text: str) -> bool:
        """Print a piece of the response's text. Return True if no piece was printed before.

        Blank pieces before the first text are ignored.
        """
        is_first = self._prose is None
        if self._prose is None:
            if not text.strip():
                return False
            self._close_thinking()
            self._printer.ensure_blank_line()
            self._status_line.set_activity("")
            self._prose = renderer_for(self._printer)
            text = text.lstrip("\n")
        self._print_pieces(self._prose.add(self._visible.add(text)))
        self._status_line.set_unprinted_text(self._prose.pending_text)
        return is_first

    def unprinted_text(self, text: str) -> str:
        """Return the part of the response text `text` that is not printed yet."""
        return _unprinted_part(self._text_pieces, text)

    def unprinted_thinking(self, text: str) -> str:
        return _unprinted_part(self._thinking_pieces, text)

    def close(self) -> bool:
        """End the current text and thinking. Return True if thinking was printed."""
        thought = self._close_thinking()
        self.close_text()
        return thought

    def prepare_for_other_output(self) -> bool:
        """Prepare for output that interrupts the response.

        Return True if thinking was printed. If only whole rows of the text were printed, the
        text continues below the other output. To end the text here could cut a word, and the
        rest of a code block would not be code.
        """
        if self._prose is None or not self._prose.whole_rows:
            return self.close()
        self._is_interrupted = True
        return self._close_thinking()

    def close_text(self) -> None:
        """Print the rest of the text that was held back, and end the text and its line."""
        if self._prose is not None:
            rest = self._prose.add(self._visible.end()) + self._prose.end()
            self._print_pieces(rest)
            self._printer.start_line()
            self._prose, self._is_interrupted = None, False
            self._status_line.set_unprinted_text("")

    def _print_pieces(self, pieces: list[Piece]) -> None:
        """Print pieces, after an empty line if something else was printed before them."""
        text = "".join(text for _, text in pieces)
        if text and self._is_interrupted:
            self._is_interrupted = False
            if not text.startswith("\n"):
                self._printer.ensure_blank_line()
        self._printer.print_pieces(pieces)

    def _close_thinking(self) -> bool:
        """Print the thinking that is not printed yet, as one line. Return False if there is
        none.
        """
        words = " ".join(visible("".join(self._pending_thinking)).split())
        self._pending_thinking.clear()
        self._status_line.forget_output("thinking")
        if words:
            sign = self._printer.capabilities.sign("thought")
            row = f"{sign} {words}"
            width = self._printer.free_columns
            if cells(row) > width:
                row = cut(row, width - cells(_THINKING_HINT)) + _THINKING_HINT
            self._printer.ensure_blank_line()
            self._printer.print_text(row, "dim")
        return bool(words)


def _unprinted_part(pieces: list[str], text: str) -> str:
    """Return the part of `text` that is not among the printed `pieces`.

    Printed text after `text` stays in `pieces`, for the next call. Return "" if the printed
    text differs from `text`, for example because secrets were masked afterwards.
    """
    printed, complete = "".join(pieces).lstrip(), text.lstrip()
    pieces.clear()
    if printed.startswith(complete):
        pieces.append(printed.removeprefix(complete))
        return ""
    if complete.startswith(printed):
        return complete.removeprefix(printed)
    return ""
