"""Writes a screen as plain text: without colours, wrapping or control sequences.

A mark shows the role: › message, ‹ answer, ∴ thinking, ● call, · notice. All other lines of a
block are indented, so that no text can imitate another block.
"""

import sys
from collections.abc import Callable, Iterator

from refold.values.messages import ToolCall
from refold.views.call_summary import label
from refold.views.children_list import report_lines, report_start
from refold.views.escape import escape_to_one_line, visible
from refold.views.screen.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    DroppedBlock,
    MessageBlock,
    NoticeBlock,
    StreamingBlock,
    ThinkingBlock,
    TurnEndBlock,
    result_rows,
    turn_rows,
)
from refold.views.screen.conversation import is_from_child
from refold.views.screen.screen import Screen
from refold.views.styled import plain_text

_UNLIMITED_CELLS = sys.maxsize  # no line is wrapped or cut
# No empty line is printed between two blocks of the same one of these classes.
_DENSE_BLOCKS = (CallBlock, NoticeBlock, TurnEndBlock)


def _plain_label(call: ToolCall) -> str:
    return label(call, tool=None)


def transcript(screen: Screen, label: Callable[[ToolCall], str] = _plain_label) -> str:
    """Return all blocks of the screen as text, with the response in progress.

    `label` describes a call in one line.
    """
    return "\n".join(_rows(screen, label))


def _rows(screen: Screen, label: Callable[[ToolCall], str]) -> Iterator[str]:
    """Yield the lines of all blocks, with an empty line between blocks of different kinds."""
    directory = screen.view.session.directory
    before: Block | None = None
    for block in screen.blocks:
        is_dense = isinstance(block, _DENSE_BLOCKS) and type(before) is type(block)
        if before is not None and not is_dense:
            yield ""
        yield from _block(block, label, directory)
        before = block
    for coming in screen.coming:
        if before is not None or coming is not screen.coming[0]:
            yield ""
        yield from _streaming_lines(coming)


def _response(text: str, mark: str) -> Iterator[str]:
    """Yield the lines of the model's text, and a note `mark` about it, unless that is ""."""
    if text.strip():
        yield from _mark_first_line("‹ ", visible(text))
    if mark:
        yield f"  ({mark})"


def _block(block: Block, label: Callable[[ToolCall], str], directory: str) -> Iterator[str]:
    """Yield the lines of a block, each but the first indented."""
    match block:
        case MessageBlock():
            yield from _message(block)
        case AnswerBlock(text=text, partial=partial):
            yield from _response(text, "cut off here" if partial else "")
        case DroppedBlock(text=text):
            yield from _response(text, escape_to_one_line(block.mark))
        case ThinkingBlock(text=text):
            yield from _mark_first_line("∴ ", visible(text))
        case CallBlock():
            yield from _call_lines(block, label(block.call), directory)
        case NoticeBlock(line=line, report=report):
            yield from _mark_first_line("· ", plain_text([line]))
            if start := report_start(report):
                yield f"  └ {visible(start)}"
        case TurnEndBlock():
            for row in turn_rows(block):
                yield from _mark_first_line("· ", plain_text([row]))


def _message(block: MessageBlock) -> Iterator[str]:
    """Yield the lines of a message, or of a subagent's report."""
    if is_from_child(block.sender):
        first, *rest = report_lines(block.sender, block.words, _UNLIMITED_CELLS)
        yield f"› {plain_text([first])}"
        yield from (plain_text([row]) for row in rest)
        return
    sender = "" if block.sender == "person" else f"{escape_to_one_line(block.sender)}: "
    yield from _mark_first_line("› ", sender + visible(block.user_text))
    for image in block.images:
        yield f"  [image {escape_to_one_line(image.name or image.media_type)}]"
    if block.later:
        yield "  (queued for the next turn)"


def _call_lines(block: CallBlock, text: str, directory: str) -> Iterator[str]:
    """Yield the lines of a call: its label `text`, the question about it, and its result."""
    caller = f" (by the code of {escape_to_one_line(block.within)})" if block.within else ""
    yield f"● {text}{caller}"
    if block.answered:
        question = escape_to_one_line(block.reason or "asked")
        yield f"  ? {question}: {escape_to_one_line(block.answered)}"
    if block.stage == "asked":
        yield f"  ? it waits for a person: {escape_to_one_line(block.reason)}"
    elif block.open:
        yield "  └ running" if block.stage == "running" else "  └ not begun"
    for index, row in enumerate(result_rows(block, _UNLIMITED_CELLS, directory)):
        yield ("    " if index else "  └ ") + plain_text([row])


def _streaming_lines(coming: StreamingBlock) -> Iterator[str]:
    """Yield the lines of a part of a response that is still arriving."""
    match coming.kind:
        case "words":
            yield from _mark_first_line("‹ ", visible(str(coming.text)) + " …")
        case "thought":
            yield from _mark_first_line("∴ ", visible(str(coming.text)) + " …")
        case "call":
            yield f"● {escape_to_one_line(str(coming.text))} …"


def _mark_first_line(mark: str, text: str) -> Iterator[str]:
    """Yield the lines of a text, the first after `mark` and the others indented."""
    first, *rest = text.strip("\n").rstrip().split("\n")
    yield (mark + first).rstrip()
    yield from (f"  {row}".rstrip() for row in rest)
