"""Lays out the blocks of the transcript as rows, and selects the visible rows. Pure.

A block is laid out when it is first visible; its rows are kept until the width changes. Large
blocks may be laid out in another thread (`Memo.layouts`); their end is shown until then. The
first visible row is given by an anchor, so text that arrives below moves nothing; without an
anchor, the end is shown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from refold.client.types import View, events
from refold.tui.image_sizes import ImageSize
from refold.tui.prose_rows import (
    MAX_CHARS_AT_ONCE,
    Layouts,
    StreamRows,
    markdown_rows,
)
from refold.tui.shell_rows import (
    INDENT_CELLS,
    RunningShell,
    indent_result,
    running_shell_rows,
    shell_message_rows,
    shell_message_text,
)
from refold.values.control import PlanReady
from refold.values.display import Diff
from refold.values.growing import Log
from refold.values.messages import Image, ToolCall
from refold.views import call_summary
from refold.views.children_list import report_lines, report_rows, reported_calls
from refold.views.escape import escape_to_one_line, visible
from refold.views.screen.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    DroppedBlock,
    MessageBlock,
    NoticeBlock,
    Open,
    StreamingBlock,
    ThinkingBlock,
    TurnEndBlock,
    interactive_turn_rows,
    message_rows,
    result_rows,
)
from refold.views.screen.conversation import is_from_child, is_from_shell
from refold.views.styled import ImageRow, Line, Piece, Style, line, plain_text
from refold.views.wrap import break_lines, cut, expand_tabs, truncate, wrap_rows, wrap_words

_RESULT_FOLD = call_summary.ResultFold("; Ctrl+O shows them", output=5, diff=14)
_MAX_SHORT_ROWS = 2  # of a call or notice that may follow another one without a gap
_TAIL_ROWS = 3  # of the newest output of a running command
_END_CHARS = 4_000  # of a large item that are shown until all of it is laid out
_STATE_SIGNS: dict[str, tuple[Style, str]] = {
    "called": ("dim", "○"),
    "asked": ("warn", "?"),
    "running": ("accent", "●"),
    "done": ("good", "●"),
    "failed": ("bad", "●"),
    "refused": ("warn", "●"),
    "stopped": ("warn", "●"),
    "unknown": ("warn", "●"),
}


class CommandRows(Struct, frozen=True):
    """Rows that a slash command printed. They are not in the journal.

    With `begins`, they are the command as it was typed, and its output follows.
    """

    rows: tuple[Line, ...]
    begins: bool = False


Item: TypeAlias = Block | CommandRows
LiveItem: TypeAlias = StreamingBlock | RunningShell


class Anchor(Struct, frozen=True):
    """The first visible row: the row with the index `row` of the item with the index `item`."""

    item: int
    row: int = 0


class Memo:
    """The rows of items that are laid out, shared by all versions of a transcript.

    `rows` has for each finished item whether it is shown in full, and its rows. `layouts` lays
    out large items; without it, they are laid out at once.
    """

    def __init__(self, layouts: Layouts | None = None) -> None:
        self.layouts = layouts
        self.width = 0
        self.rows: dict[int, tuple[bool, list[Line]]] = {}
        self.stream: StreamRows | None = None

    def for_width(self, width: int) -> "Memo":
        """Return this memo, emptied if its rows have another width."""
        if width != self.width:
            self.width, self.stream = width, None
            self.rows.clear()
        return self


def _tool_name(call: ToolCall) -> str:
    return call_summary.label(call, tool=None)


class Transcript(Struct, frozen=True):
    """The transcript. `whole` says that items are shown in full, `flipped` has exceptions."""

    items: Log[Item] = field(default_factory=Log[Item])
    open: tuple[Open, ...] = ()
    coming: tuple[StreamingBlock, ...] = ()
    shell: tuple[RunningShell, ...] = ()  # at most one, below all other items
    directory: str = ""
    whole: bool = False
    flipped: frozenset[int] = frozenset()
    label: Callable[[ToolCall], str] = _tool_name
    links: bool = False  # the terminal opens links; otherwise addresses are in the text
    # Sizes of the images that are drawn; for other images a card is shown.
    sizes: Mapping[str, ImageSize] = {}
    memo: Memo = field(default_factory=Memo)

    def __len__(self) -> int:
        return len(self.items) + len(self._live_items)

    def item(self, index: int) -> Item | LiveItem:
        """Return an item by its index: finished items come first, then open and streaming ones."""
        if index < len(self.items):
            return self.items[index]
        return self._live_items[index - len(self.items)]

    @property
    def _live_items(self) -> Sequence[Open | LiveItem]:
        return (*self.open, *self.coming, *self.shell)

    def is_whole(self, index: int) -> bool:
        """Whether an item is shown in full."""
        return self.whole != (index in self.flipped)

    def rows(self, index: int, width: int) -> list[Line]:
        """Return the rows of an item, with the empty row that separates it from the one above."""
        body = self._item_rows(index, width)
        if body and self._has_gap_above(index, width, len(body)):
            return [(), *body]
        return body

    def _item_rows(self, index: int, width: int) -> list[Line]:
        """Return the rows of an item; of a large item only the end, until it is laid out."""
        memo, whole = self.memo.for_width(width), self.is_whole(index)
        if index >= len(self.items):
            return self._open_rows(self.item(index), width, whole=whole)
        cached = memo.rows.get(index)
        if cached is not None and cached[0] == whole:
            return cached[1]
        if memo.layouts is not None:
            item = self.items[index]
            large_text = _large_text(item, self.label, whole=whole)
            if large_text:
                lay_out = partial(self._keep_rows, index, width, whole=whole)
                memo.layouts.request((id(memo), index, width, whole), lay_out)
                return _end_rows(item, large_text, width)
        self._keep_rows(index, width, whole=whole)
        _, rows = memo.rows[index]
        return rows

    def _keep_rows(self, index: int, width: int, *, whole: bool) -> None:
        """Lay out an item and store its rows. This may run in a worker thread."""
        rows = item_rows(self.items[index], width, self, whole=whole)
        if width == self.memo.width:
            self.memo.rows[index] = (whole, rows)

    def _open_rows(self, item: Item | LiveItem, width: int, *, whole: bool) -> list[Line]:
        if isinstance(item, RunningShell):
            return running_shell_rows(item, width)
        if not isinstance(item, StreamingBlock):
            return item_rows(item, width, self, whole=whole)
        match item.kind:
            case "words":
                stream = self.memo.stream
                if stream is None or not stream.can_extend_to(item.text):
                    stream = self.memo.stream = StreamRows(width, links=self.links)
                return stream.rows_of(item.text, self.memo.layouts)
            case "thought":
                return thinking_rows(str(item.text), width, whole=whole)
            case _:
                return [(("dim", f"○ {escape_to_one_line(str(item.text))} …"),)]

    def _has_gap_above(self, index: int, width: int, row_count: int) -> bool:
        """Return whether an empty row is above the item. There is none between short calls."""
        if not index:
            return False
        above, item = self.item(index - 1), self.item(index)
        if isinstance(item, CommandRows) and isinstance(above, CommandRows):
            return item.begins
        if not isinstance(item, CallBlock | NoticeBlock) or row_count > _MAX_SHORT_ROWS:
            return True
        if not isinstance(above, CallBlock | NoticeBlock):
            return True
        return len(self._item_rows(index - 1, width)) > _MAX_SHORT_ROWS


def item_rows(item: Item, width: int, transcript: Transcript, *, whole: bool) -> list[Line]:
    match item:
        case CommandRows(rows):
            return [part for row in rows for part in wrap_rows(row, width)]
        case MessageBlock():
            return _message_rows(item, width, transcript, whole=whole)
        case AnswerBlock(text=text):
            return markdown_rows(text, width, links=transcript.links)
        case DroppedBlock(text=text):
            rows = [line(visible(row), "dim") for row in text.splitlines() if row.strip()]
            mark = line(escape_to_one_line(item.mark), "warn")
            return [part for row in (*rows, mark) for part in wrap_rows(row, width)]
        case ThinkingBlock(text=text):
            return thinking_rows(text, width, whole=whole)
        case CallBlock():
            return _call_rows(item, width, transcript, whole=whole)
        case NoticeBlock():
            return _notice_rows(item, width, transcript, whole=whole)
        case TurnEndBlock():
            rows = interactive_turn_rows(item)
            return [part for row in rows for part in wrap_rows(row, width)]


def item_text(item: Item | LiveItem, label: Callable[[ToolCall], str] = _tool_name) -> str:
    """Return the text of an item, to be searched or copied. The item need not be laid out."""
    match item:
        case MessageBlock():
            return (
                shell_message_text(item) if is_from_shell(item.sender) else item.user_text
            )
        case AnswerBlock(text=text) | ThinkingBlock(text=text):
            return text
        case DroppedBlock(text=text):
            return f"{text}\n{item.mark}".strip()
        case CallBlock():
            diffs = [diff.text for diff in item.shown if isinstance(diff, Diff)]
            return "\n".join((label(item.call), *(diffs or [item.text])))
        case NoticeBlock(line=notice, report=report):
            return f"{plain_text([notice])}\n{report}".strip()
        case TurnEndBlock():
            return plain_text(interactive_turn_rows(item))
        case CommandRows(rows):
            return plain_text(rows)
        case StreamingBlock(text=text) | RunningShell(printed=text):
            return str(text)


def _large_text(item: Item, label: Callable[[ToolCall], str], *, whole: bool) -> str:
    """Return the text of an item if laying it out takes long; otherwise "".

    Unless `whole` is true, calls, messages and notices have few rows and never take long.
    """
    if not whole and not isinstance(item, AnswerBlock | DroppedBlock):
        return ""
    text = item_text(item, label)
    return text if len(text) > MAX_CHARS_AT_ONCE else ""


def _end_rows(item: Item, text: str, width: int) -> list[Line]:
    """Return the last rows of a large item, shown until it is laid out."""
    tail = text[-_END_CHARS:]
    _, _, whole_lines = tail.partition("\n")
    end = whole_lines or tail  # without the first line, which is incomplete
    hidden_chars = len(text) - len(end)
    head = line(cut(f"… {hidden_chars:,} characters above …", width), "dim")
    if isinstance(item, AnswerBlock):
        return [head, *markdown_rows(end, width, links=False)]
    return [head, *(line(row) for row in break_lines(expand_tabs(visible(end)), width))]


def thinking_rows(text: str, width: int, *, whole: bool) -> list[Line]:
    """Return the rows of the model's thinking: one row, or all if `whole`."""
    words = " ".join(visible(text).split())
    if not whole:
        return [line(cut(f"∴ {words}", width), "dim")]
    return [
        (("dim", "∴ " if not index else "  "), *row)
        for index, row in enumerate(wrap_words(words, width - 2, "dim"))
    ]


def visible_rows(
    transcript: Transcript, anchor: Anchor | None, width: int, height: int
) -> tuple[list[Line], list[int]]:
    """Return the visible rows, and for each row the index of its item."""
    if anchor is None:
        anchor = last_anchor(transcript, width, height)
    rows, items = list[Line](), list[int]()
    index, skip = anchor.item, anchor.row
    while index < len(transcript) and len(rows) < height:
        body = transcript.rows(index, width)[skip:]
        rows += body
        items += [index] * len(body)
        index += 1
        skip = 0
    return rows[:height], items[:height]


def last_anchor(transcript: Transcript, width: int, height: int) -> Anchor:
    """Return the anchor with which the end of the transcript is visible."""
    index, missing_rows = len(transcript), height
    while index and missing_rows > 0:
        index -= 1
        missing_rows -= len(transcript.rows(index, width))
    excess_rows = max(-missing_rows, 0)  # the first rows of the item are not visible
    return Anchor(index, excess_rows)


def scroll_anchor(
    transcript: Transcript, anchor: Anchor | None, rows: int, width: int, height: int
) -> Anchor | None:
    """Return the anchor `rows` rows further down (up, if negative); None at the end."""
    last = last_anchor(transcript, width, height)
    start = anchor or last
    item = start.item
    row = start.row + rows
    while row < 0 and item:
        item -= 1
        row += len(transcript.rows(item, width))
    row = max(row, 0)
    while item < len(transcript) and row >= len(transcript.rows(item, width)):
        row -= len(transcript.rows(item, width))
        item += 1
    return None if (item, row) >= (last.item, last.row) else Anchor(item, row)


def find_item(transcript: Transcript, text: str, start: int, step: int) -> int | None:
    """Return the index of the next item that contains `text`, or None.

    The search begins at the index `start`, and goes down, or up if `step` is negative.
    """
    query = text.casefold()
    indexes = range(start, len(transcript)) if step > 0 else range(start, -1, -1)
    for index in indexes:
        searched_text = item_text(transcript.item(index), transcript.label)
        if query in searched_text.casefold():
            return index
    return None


def code_block(text: str) -> str:
    """Return the last fenced block in a text, without its fences; "" if there is none."""
    last_code = ""
    rows = list[str]()  # the rows of the open block
    fence = ""  # the fence of the open block; "" outside of blocks
    for row in text.split("\n"):
        mark = row.strip()
        if not fence:
            if mark.startswith(("```", "~~~")):
                fence = mark[:3]
                rows.clear()
        elif mark == fence:
            last_code = "\n".join(rows)
            fence = ""
        else:
            rows.append(row)
    return last_code


def _message_rows(
    item: MessageBlock, width: int, transcript: Transcript, *, whole: bool
) -> list[Line]:
    """Return the rows of a message: of a subagent's report, of a `!command`, or of the user."""
    if is_from_child(item.sender):
        return list(report_lines(item.sender, item.words, width))
    if is_from_shell(item.sender):
        return shell_message_rows(item, width, _RESULT_FOLD.hint, whole=whole)
    rows = message_rows(item, width, _RESULT_FOLD.hint, whole=whole)
    lines: list[Line] = [
        (("person", "  " if index else "› "), *row) for index, row in enumerate(rows)
    ]
    return [*lines, *_image_rows(item.images, width, transcript, whole=whole)]


def _notice_rows(
    item: NoticeBlock, width: int, transcript: Transcript, *, whole: bool
) -> list[Line]:
    """Return the rows of a notice, and of a subagent's report in it: one row, or all if
    `whole`.
    """
    if whole:
        rows = markdown_rows(item.report, width - INDENT_CELLS, links=transcript.links)
    else:
        rows = report_rows(item.report, width - INDENT_CELLS, max_rows=1)
    return [*wrap_rows(item.line, width), *indent_result(rows, indent=0)]


def _image_rows(
    images: Sequence[Image], width: int, transcript: Transcript, *, whole: bool
) -> Iterator[Line]:
    """Yield for each image a row with name and type, and blank rows on which it is drawn."""
    for image in images:
        name, kind = escape_to_one_line(image.name), escape_to_one_line(image.media_type)
        text = f"{name} · {kind}" if name else kind
        yield truncate((("accent", "  ▣ "), ("dim", text)), width)
        size = transcript.sizes.get(image.blob)
        if size is None or width < 2 * INDENT_CELLS:
            continue
        columns, rows = size.fit(width - INDENT_CELLS, whole=whole)
        for row in range(rows):
            drawn = ImageRow(image.blob, row, rows, columns)
            yield (("plain", " " * INDENT_CELLS), (drawn, " " * columns))


def _call_rows(
    item: CallBlock, width: int, transcript: Transcript, *, whole: bool
) -> list[Line]:
    """Return the rows of a call, of its result and of its images.

    A call that code made is indented.
    """
    style, sign = _STATE_SIGNS[item.stage]
    indent = 2 if item.within else 0
    text = transcript.label(item.call)
    first, *others = call_summary.call_rows(
        text, width - indent, _RESULT_FOLD.hint, whole=whole
    )
    head: Line = ((style, f"{' ' * indent}{sign} "), *first)
    blank: Piece = ("plain", " " * (indent + 2))
    result = _result_rows(item, width - INDENT_CELLS - indent, transcript, whole=whole)
    return [
        head,
        *((blank, *row) for row in others),
        *indent_result(result, indent),
        *_image_rows(item.images, width, transcript, whole=whole),
    ]


def _result_rows(
    item: CallBlock, width: int, transcript: Transcript, *, whole: bool
) -> list[Line]:
    """Return the rows of a result: of a running call the last output, of a plan its text."""
    if item.open:
        texts = [row for row in item.tail.replace("\r", "\n").split("\n") if row.strip()]
        last_texts = texts[-_TAIL_ROWS:]
        return [line(cut(escape_to_one_line(text), width), "dim") for text in last_texts]
    if isinstance(item.control, PlanReady):
        if not whole:
            return []
        return markdown_rows(item.control.plan, width, links=transcript.links)
    if whole and item.stage == "done":
        end = events.Ended(item.call.id, item.stage, item.text, item.shown)
        return call_summary.whole_rows(end, item.text, width, transcript.directory)
    return result_rows(item, width, transcript.directory, _RESULT_FOLD)


def images_in(items: Iterable[Item]) -> tuple[str, ...]:
    """Return the names of the images in these items, each once."""
    groups = (item.images for item in items if isinstance(item, CallBlock | MessageBlock))
    return tuple(dict.fromkeys(image.blob for images in groups for image in images))


def with_sizes(transcript: Transcript, sizes: Mapping[str, ImageSize]) -> Transcript:
    """Return the transcript with these image sizes. All items will be laid out again."""
    sizes = {**transcript.sizes, **sizes}
    return replace(transcript, sizes=sizes, memo=Memo(transcript.memo.layouts))


def blocks_to_show(blocks: Iterable[Block], view: View) -> list[Block]:
    """Return the blocks without those that are already visible elsewhere on the screen.

    The status line shows the mode and the running subagents. The notice about a subagent's end
    has the report, which is also the result of a call.
    """
    reported = reported_calls(view.children)
    return [block for block in blocks if not _is_shown_elsewhere(block, reported)]


def _is_shown_elsewhere(block: Block, reported_ids: frozenset[str]) -> bool:
    match block:
        case NoticeBlock():
            return block.is_status or block.begins != ""
        case CallBlock():
            return block.stage == "done" and block.call.id in reported_ids
        case _:
            return False


def with_items(transcript: Transcript, new: Sequence[Item]) -> Transcript:
    """Return the transcript with these items added to the finished ones."""
    items = transcript.items
    for item in new:
        items = items.plus(item)
    return replace(transcript, items=items)
