"""Messages on a screen: received, streamed, and complete responses. Pure."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from refold.journal.events.kinds import (
    Delivered,
    Ended,
    Entry,
    Imported,
    MessageWithdrawn,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Rewound,
    Said,
    Stopped,
    TurnEnded,
)
from refold.journal.state.conversation import SHELL_SENDER
from refold.journal.state.fold import View
from refold.values.control import Final
from refold.values.growing import Growing
from refold.values.live import CallComing, Live, TextCame, ThinkingCame
from refold.values.messages import Part, Text, Thinking
from refold.views.screen.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    DroppedBlock,
    MessageBlock,
    Open,
    StreamingBlock,
    ThinkingBlock,
)

EVENT_KINDS = frozenset((
    ModelAnswered, ModelFailed, Ended, Said, Delivered, MessageWithdrawn, Rewound, Imported,
))  # fmt: skip
# After these, the response in progress gets no more text.
END_KINDS = frozenset(
    (ModelAsked, ModelAnswered, ModelFailed, Stopped, TurnEnded, Imported)
)


def add_to_response(
    so_far: tuple[StreamingBlock, ...], live: Live
) -> tuple[StreamingBlock, ...]:
    """The response in progress, with one more piece."""
    match live:
        case TextCame(text):
            return _append_text(
                so_far, StreamingBlock(kind="words", text=Growing(text)), text
            )
        case ThinkingCame(text):
            return _append_text(
                so_far, StreamingBlock(kind="thought", text=Growing(text)), text
            )
        case CallComing(name):
            return (*so_far, StreamingBlock(kind="call", text=Growing(name)))
        case _:
            return so_far


def answer_blocks(entry: Entry) -> Iterator[Block]:
    """The texts of a response, without its calls. Texts of a failed one are marked."""
    match entry.event:
        case ModelAnswered(message) as answer:
            for part in _join_parts(message.parts):
                if isinstance(part, Text) and part.text.strip():
                    yield AnswerBlock(
                        seq=entry.seq, at=entry.at, text=part.text, model=answer.model,
                        partial=answer.partial or answer.stop == "length",
                    )  # fmt: skip
                elif isinstance(part, Thinking) and part.text.strip():
                    yield ThinkingBlock(seq=entry.seq, at=entry.at, text=part.text)
        case ModelFailed(reason, partial_text=text, dropped=True):
            yield DroppedBlock(seq=entry.seq, at=entry.at, text=text, reason=reason)
        case ModelFailed(partial_text=text, model=model) if text.strip():
            yield AnswerBlock(
                seq=entry.seq, at=entry.at, text=text, model=model, partial=True
            )
        case _:
            return


def final_answer(entry: Entry, view: View) -> Iterator[Block]:
    """The block of a final answer that a tool gave."""
    match entry.event:
        case Ended(control=Final(answer)) if answer.strip():
            model = view.turn.model
            yield AnswerBlock(seq=entry.seq, at=entry.at, text=answer, model=model)
        case _:
            return


def message_blocks(
    open_: tuple[Open, ...], entry: Entry, view: View
) -> tuple[tuple[Open, ...], tuple[MessageBlock, ...]]:
    """The open blocks after this event, and the messages that were delivered.

    During a turn, messages wait until they are delivered, and appear at that point.
    """
    match entry.event:
        case Said() as said_event:
            words = _message_block(entry.seq, entry.at, said_event)
            if view.turn.seq and not is_from_child(said_event.sender):
                return (*open_, replace(words, later=_is_for_later(said_event, view))), ()
            return open_, (words,)
        case Delivered(taken):
            return _take_messages(open_, set(taken))
        case MessageWithdrawn(message):
            return _take_messages(open_, {message})[0], ()
        case Rewound() | Imported() if open_:
            waiting = {undelivered.seq for undelivered in view.conversation.undelivered}
            gone = {b.seq for b in open_ if isinstance(b, MessageBlock)} - waiting
            return _take_messages(open_, gone)
        case _:
            return open_, ()


def waiting_messages(view: View) -> Iterator[MessageBlock]:
    """The messages that wait for delivery, without those of subagents."""
    for message in view.conversation.undelivered:
        later = _is_for_later(message.said, view)
        if (later or view.turn.seq) and not is_from_child(message.said.sender):
            yield replace(_message_block(message.seq, 0.0, message.said), later=later)


def _is_for_later(message: Said, view: View) -> bool:
    """Whether the message is for after the turn, or replaces a stopped turn."""
    return message.when == "next" or view.turn.stopped is not None


def is_from_child(sender: str) -> bool:
    return sender.startswith("child-")


def is_from_shell(sender: str) -> bool:
    """Whether it is a command that the user ran, with its output."""
    return sender == SHELL_SENDER


def _message_block(seq: int, time: float, message: Said) -> MessageBlock:
    return MessageBlock(
        seq=seq, at=time, words=message.text, sender=message.sender, key=message.client_key,
        images=message.images, typed=message.typed,
    )  # fmt: skip


def _take_messages(
    open_: tuple[Open, ...], seqs: set[int]
) -> tuple[tuple[Open, ...], tuple[MessageBlock, ...]]:
    taken = tuple(b for b in open_ if isinstance(b, MessageBlock) and b.seq in seqs)
    if not taken:
        return open_, ()
    left = tuple(b for b in open_ if isinstance(b, CallBlock) or b.seq not in seqs)
    return left, taken


def _append_text(
    so_far: tuple[StreamingBlock, ...], new: StreamingBlock, text: str
) -> tuple[StreamingBlock, ...]:
    last = so_far[-1] if so_far else None
    if last is None or last.kind != new.kind:
        return (*so_far, new)
    return (*so_far[:-1], replace(last, text=last.text.plus(text)))


def _join_parts(parts: Sequence[Part]) -> Iterator[Part]:
    """Join consecutive thoughts, and texts: providers may sign pieces of a thought."""
    pending: Text | Thinking | None = None
    for part in parts:
        if isinstance(part, Thinking) and not part.text:
            continue
        if isinstance(pending, Text) and isinstance(part, Text):
            pending = Text(pending.text + part.text)
        elif isinstance(pending, Thinking) and isinstance(part, Thinking):
            pending = Thinking(pending.text + part.text)
        else:
            if pending is not None:
                yield pending
            pending = part if isinstance(part, Text | Thinking) else None
    if pending is not None:
        yield pending
