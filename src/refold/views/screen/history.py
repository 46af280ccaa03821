"""The messages of a session: all of them with their numbers, or a short recap for a resume. Pure.

The number is the sequence number of the event: a rewind goes back to before it. Tool calls are
counted only; `transcript` shows them.
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
_PEOPLE = ("person", "parent")
_EXCHANGES = 3
_ROWS = 4  # of one answer
_BACK = 200  # messages that are searched for an answer
_NOTES = {
    "started": "was running; it may or may not have taken effect",
    "asked": "you were asked",
}
_ASKING = "the model was being asked"


def message_lines(
    entries: Sequence[Entry],
    gone: Collection[int] = (),
    last: int = 0,
    room: int = 0,
    edits: Mapping[int, str | None] = NO_EDITS,
) -> Iterator[Line]:
    """Messages and answers. `last`: only the last so many messages; 0: all.

    `gone` are the numbers of messages that were rewound, `edits` what the user made of others
    (None: deleted). `room` is the width of the screen; 0: no wrapping.
    """
    blocks = screen_of(entries).blocks
    heard = [at for at, each in enumerate(blocks) if _spoke(each)]
    first = heard[-last] if 0 < last <= len(heard) else 0
    shown = [b for b in blocks[first:] if _spoke(b) or isinstance(b, AnswerBlock)]
    wide = max((len(str(block.seq)) for block in shown), default=0)
    calls, taken_back = 0, False
    for block in blocks[first:] if heard else ():
        if isinstance(block, CallBlock):
            calls += 1
            continue
        if not (_spoke(block) or isinstance(block, AnswerBlock)):
            continue
        if calls:
            many = "1 call" if calls == 1 else f"{calls} calls"
            yield (("dim", f"{'':{wide}}  ({many})"),)
            calls = 0
        if isinstance(block, MessageBlock):
            taken_back = block.seq in gone
        fate = "rewound" if taken_back else _fate(block.seq, edits)
        yield from _block(block, wide, room, fate, edits.get(block.seq))


def _spoke(block: Block) -> bool:
    return isinstance(block, MessageBlock) and block.sender in _PEOPLE


def _fate(seq: int, edits: Mapping[int, str | None]) -> str:
    if seq not in edits:
        return ""
    return "deleted" if edits[seq] is None else "edited"


def _block(
    block: Block, wide: int, room: int, fate: str, new: str | None
) -> Iterator[Line]:
    """`fate`: "rewound", "deleted", "edited" (to `new`), or "" for a message as it was."""
    gone = fate in ("rewound", "deleted")
    match block:
        case MessageBlock(words=words, typed=typed, images=images):
            own: Style = "person"
            text = visible(new or typed or words) or f"({len(images)} images)"
        case AnswerBlock(text=words):
            own, text = "plain", visible(new or words)
        case _:
            return
    number: Style = "accent" if own == "person" else "dim"
    yield from _rows(
        (number, f"{block.seq:>{wide}}  "), ("dim" if gone else own, text), room
    )
    if fate:
        yield (("dim", f"{'':{wide}}  ({fate})"),)


def _rows(head: Piece, text: Piece, room: int) -> Iterator[Line]:
    style, words = text
    indent = len(head[1])
    for at, row in enumerate(words.strip("\n").rstrip().split("\n")):
        first = head if at == 0 else ("plain", " " * indent)
        line: Line = (first, (style, row))
        yield wrap_line(line, max(room, indent + 10), indent) if room else line


def recap(view: View, room: int, sign: str = "›", newest: int = 0) -> list[Line]:
    """The last exchanges, shortened: each message and the last answer to it.

    Only the end of the conversation is read, so that resuming a long one takes no longer. `sign`
    stands before a message, as at the prompt. The `newest` exchanges are left out.
    """
    messages, end = view.conversation.messages, len(view.conversation.messages)
    exchanges = list[tuple[str, str]]()
    for told in _newest(view.conversation.user_messages):
        at = bisect_left(messages, told[0].delivered, key=lambda spoken: spoken.seq)
        if at == len(messages) or messages[at].seq != told[0].delivered:
            break  # compacted since: message and answer are gone
        words = " ".join(each.text for each in told)
        exchanges.append((words, _answer(messages[max(at + 1, end - _BACK) : end])))
        end = at
        if len(exchanges) == _EXCHANGES:
            break
    del exchanges[:newest]
    return [
        row
        for words, said in reversed(exchanges)
        for row in _exchange(f"{sign} {words}", said, room)
    ]


def last_exchange(view: View, entries: Iterable[Entry]) -> Screen | None:
    """The last message and all that came after it, from the `entries` since that message.

    None where the conversation was rewound since: those entries tell what is no longer in it.
    """
    if any(isinstance(each.event, Rewound) for each in entries):
        return None
    return screen_of(entries, Screen(view=View(session=view.session)))


def last_message(view: View) -> int:
    """The seq of the event with the last message of the user; 0: there is none."""
    told = next(_newest(view.conversation.user_messages), None)
    return told[0].seq if told else 0


def cut_off_lines(view: View, label: Callable[[ToolCall], str], room: int) -> list[Line]:
    """What was running when the process of an unfinished turn ended."""
    rows: list[Line] = [line("This turn was cut off:", "warn")]
    for each in view.conversation.calls:
        if each.result is not None or each.nested is not None:
            continue
        sign, what = "● ", visible(label(each.call))
        note = _NOTES.get(each.stage, "not started")
        rows.append((
            ("plain", f"  {sign}{cut(what, max(room - len(note) - 8, 20))}"),
            ("dim", f"  {note}"),
        ))  # fmt: skip
    if len(rows) == 1:
        said = [visible(each.said.text) for each in view.conversation.undelivered]
        waits = f"your message was not answered: {' '.join(said)}" if said else _ASKING
        rows.append(line(f"  {cut(' '.join(waits.split()), room - 2)}", "dim"))
    return rows


def _newest(said: Sequence[conversation.UserText]) -> Iterator[list[conversation.UserText]]:
    """The user's messages, newest first; those that were sent together are one."""
    at = len(said)
    while at:
        heard, together = said[at - 1].delivered, list[conversation.UserText]()
        while at and said[at - 1].delivered == heard:
            at -= 1
            together.insert(0, said[at])
        yield together


def _answer(spoken: Sequence[StoredMessage]) -> str:
    """The last text of the model in these messages."""
    said = (e.message.text for e in reversed(spoken) if e.message.role == "assistant")
    return next((text for text in said if text), "")


def _exchange(words: str, answer: str, room: int) -> Iterator[Line]:
    yield (("person", cut(" ".join(visible(words).split()), room)),)
    rows = [row for row in visible(answer).split("\n") if row.strip()]
    left = len(rows) - _ROWS
    if left > 0:
        yield (("dim", f"  … {left} lines …"),)
    for row in rows[-_ROWS:]:
        yield (("dim", f"  {cut(row, room - 2)}"),)
