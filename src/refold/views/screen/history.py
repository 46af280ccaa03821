"""Shows the messages of a session: all with their numbers, or a short recap for a resume. Pure.

The number of a message is that of its event; a rewind can name it. Tool calls are only counted;
`transcript` shows them.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from refold.journal.events.kinds import Entry, Rewound
from refold.journal.state import conversation
from refold.journal.state.fold import View
from refold.values.messages import StoredMessage, ToolCall
from refold.views.escape import visible
from refold.views.screen.blocks import AnswerBlock, Block, CallBlock, MessageBlock
from refold.views.screen.screen import Screen, screen_of
from refold.views.styled import Line, Piece, Style, line
from refold.views.wrap import cut, wrap_line

NO_EDITS: Mapping[int, str | None] = MappingProxyType({})
_REQUEST_SENDERS = ("person", "parent")
_MAX_EXCHANGES = 3
_MAX_ANSWER_ROWS = 4
_MAX_SEARCHED_MESSAGES = 200  # an answer is not searched in more
_STAGE_NOTES = {
    "started": "was running; it may or may not have taken effect",
    "asked": "you were asked",
}
_CALL_MARGIN_CELLS = (
    8  # in the row of a call: its indent, its sign and the gap before the note
)
_MIN_TEXT_CELLS = 10  # for the text of a message, even on a narrower screen
_MIN_CALL_CELLS = 20  # for a call, even on a narrower screen
_ASKING_NOTE = "the model was being asked"


def message_lines(
    entries: Sequence[Entry],
    dropped: Collection[int] = (),
    last: int = 0,
    width: int = 0,
    edits: Mapping[int, str | None] = NO_EDITS,
) -> Iterator[Line]:
    """Yield the last `last` messages of the user, with the responses to them; 0 means all.

    `dropped` are the numbers of messages that a rewind removed, `edits` the new texts of edited
    messages by number (None: deleted). `width` is the width of the screen; 0 means no wrapping.
    """
    blocks = screen_of(entries).blocks
    request_indexes = [index for index, block in enumerate(blocks) if _is_request(block)]
    if not request_indexes:
        return
    first_index = request_indexes[-last] if 0 < last <= len(request_indexes) else 0
    recent = blocks[first_index:]
    shown = [block for block in recent if _is_message(block)]
    column_width = max((len(str(block.seq)) for block in shown), default=0)
    call_count = 0  # since the last shown block
    rewound = False
    for block in recent:
        if isinstance(block, CallBlock):
            call_count += 1
            continue
        if not _is_message(block):
            continue
        if call_count:
            count_text = "1 call" if call_count == 1 else f"{call_count} calls"
            yield (("dim", f"{'':{column_width}}  ({count_text})"),)
            call_count = 0
        if isinstance(block, MessageBlock):  # the responses to it were rewound with it
            rewound = block.seq in dropped
        fate = "rewound" if rewound else _edit_kind(block.seq, edits)
        yield from _block(block, column_width, width, fate, edits.get(block.seq))


def _is_request(block: Block) -> bool:
    return isinstance(block, MessageBlock) and block.sender in _REQUEST_SENDERS


def _is_message(block: Block) -> bool:
    """Whether the block is a message of the user or a response to it."""
    return _is_request(block) or isinstance(block, AnswerBlock)


def _edit_kind(seq: int, edits: Mapping[int, str | None]) -> str:
    """Return whether a message was "deleted" or "edited"; "" if it is unchanged."""
    if seq not in edits:
        return ""
    return "deleted" if edits[seq] is None else "edited"


def _block(
    block: Block, column_width: int, width: int, fate: str, new_text: str | None
) -> Iterator[Line]:
    """Yield the rows of a message.

    `fate` is "rewound", "deleted", "edited" (then `new_text` is its text now), or "" if it is
    unchanged.
    """
    match block:
        case MessageBlock(words=words, typed=typed, images=images):
            number_style: Style = "accent"
            text_style: Style = "person"
            text = visible(new_text or typed or words) or f"({len(images)} images)"
        case AnswerBlock(text=words):
            number_style, text_style = "dim", "plain"
            text = visible(new_text or words)
        case _:
            return
    if fate in ("rewound", "deleted"):
        text_style = "dim"
    number: Piece = (number_style, f"{block.seq:>{column_width}}  ")
    yield from _rows(number, (text_style, text), width)
    if fate:
        yield (("dim", f"{'':{column_width}}  ({fate})"),)


def _rows(head: Piece, text: Piece, width: int) -> Iterator[Line]:
    """Yield the lines of `text`, the first after `head` and the others indented as far.

    With `width` 0, they are not wrapped.
    """
    style, words = text
    indent = len(head[1])
    min_width = indent + _MIN_TEXT_CELLS
    start = head
    for row in words.strip("\n").rstrip().split("\n"):
        line: Line = (start, (style, row))
        yield wrap_line(line, max(width, min_width), indent) if width else line
        start = ("plain", " " * indent)


def recap(view: View, width: int, sign: str = "›", newest: int = 0) -> list[Line]:
    """Return the last exchanges in short: each message, and the last answer to it.

    The `newest` exchanges are omitted. `sign` is printed before a message, as at the prompt.
    Only the end of the conversation is read, so a long conversation takes no longer.
    """
    messages = view.conversation.messages
    end = len(messages)
    exchanges = list[tuple[str, str]]()  # message and answer, the newest first
    for group in _newest_groups(view.conversation.user_messages):
        delivered_seq = group[0].delivered
        index = bisect_left(messages, delivered_seq, key=lambda message: message.seq)
        if index == len(messages) or messages[index].seq != delivered_seq:
            break  # a compaction has removed message and answer
        words = " ".join(message.text for message in group)
        search_start = max(index + 1, end - _MAX_SEARCHED_MESSAGES)
        exchanges.append((words, _answer(messages[search_start:end])))
        end = index  # of the exchange before this one
        if len(exchanges) == _MAX_EXCHANGES:
            break
    del exchanges[:newest]
    return [
        row
        for words, answer in reversed(exchanges)
        for row in _exchange(f"{sign} {words}", answer, width)
    ]


def last_exchange(view: View, entries: Iterable[Entry]) -> Screen:
    """Return a screen with the user's last message and all blocks after it.

    `entries` begin with that message. Blocks that a rewind removed are omitted, unless the
    rewind was undone.
    """
    kept = list[Entry]()
    # The number of each rewind, and the entries that the session had before it.
    rewinds = list[tuple[int, list[Entry]]]()
    for entry in entries:
        if not isinstance(entry.event, Rewound):
            kept.append(entry)
            continue
        mark = entry.event.mark
        rewinds.append((entry.seq, kept))
        # The session at the mark is the one before the first rewind after the mark: at the
        # latest, before this rewind.
        entries_then = next(before for seq, before in rewinds if seq >= mark)
        kept = [earlier for earlier in entries_then if earlier.seq < mark]
    return screen_of(kept, Screen(view=View(session=view.session)))


def last_message(view: View) -> int:
    """Return the event number of the user's last message; 0 if there is none."""
    newest = next(_newest_groups(view.conversation.user_messages), None)
    return newest[0].seq if newest else 0


def cut_off_lines(view: View, label: Callable[[ToolCall], str], width: int) -> list[Line]:
    """Return lines about what was running when the process of an unfinished turn exited."""
    rows: list[Line] = [line("This turn was cut off:", "warn")]
    for call in view.conversation.calls:
        if call.result is not None or call.nested is not None:
            continue
        note = _STAGE_NOTES.get(call.stage, "not started")
        text_width = max(width - len(note) - _CALL_MARGIN_CELLS, _MIN_CALL_CELLS)
        call_text = cut(visible(label(call.call)), text_width)
        rows.append((("plain", f"  ● {call_text}"), ("dim", f"  {note}")))
    if len(rows) == 1:  # no call was running
        undelivered = view.conversation.undelivered
        messages = [visible(message.said.text) for message in undelivered]
        text = _ASKING_NOTE
        if messages:
            text = f"your message was not answered: {' '.join(messages)}"
        rows.append(line(f"  {cut(' '.join(text.split()), width - 2)}", "dim"))
    return rows


def _newest_groups(
    messages: Sequence[conversation.UserText],
) -> Iterator[list[conversation.UserText]]:
    """Yield the user's messages, newest first, in groups that were delivered together.

    The messages in a group are in their original order.
    """
    end = len(messages)
    while end:
        delivered_seq = messages[end - 1].delivered
        together = list[conversation.UserText]()
        while end and messages[end - 1].delivered == delivered_seq:
            end -= 1
            together.insert(0, messages[end])
        yield together


def _answer(spoken: Sequence[StoredMessage]) -> str:
    """Return the last text that the model wrote in these messages, or ""."""
    newest_first = (stored.message for stored in reversed(spoken))
    texts = (message.text for message in newest_first if message.role == "assistant")
    return next((text for text in texts if text), "")


def _exchange(text: str, answer: str, width: int) -> Iterator[Line]:
    """Yield a message on one row, and the last rows of the answer to it."""
    yield (("person", cut(" ".join(visible(text).split()), width)),)
    rows = [row for row in visible(answer).split("\n") if row.strip()]
    hidden_count = len(rows) - _MAX_ANSWER_ROWS
    if hidden_count > 0:
        yield (("dim", f"  … {hidden_count} lines …"),)
    for row in rows[-_MAX_ANSWER_ROWS:]:
        yield (("dim", f"  {cut(row, width - 2)}"),)
