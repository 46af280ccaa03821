"""Makes a screen's blocks of messages and responses. Pure."""

from collections.abc import Iterator, Sequence
from typing import Literal

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
# After these events, the response in progress gets no more text.
END_KINDS = frozenset(
    (ModelAsked, ModelAnswered, ModelFailed, Stopped, TurnEnded, Imported)
)


def add_to_response(
    so_far: tuple[StreamingBlock, ...], live: Live
) -> tuple[StreamingBlock, ...]:
    """Return the response in progress, with the piece in `live` added."""
    match live:
        case TextCame(text):
            return _append_text(so_far, "words", text)
        case ThinkingCame(text):
            return _append_text(so_far, "thought", text)
        case CallComing(name):
            return (*so_far, StreamingBlock(kind="call", text=Growing(name)))
        case _:
            return so_far


def answer_blocks(entry: Entry) -> Iterator[Block]:
    """Yield the blocks of a response's text and thinking. Tool calls are not included.

    The text of a failed response is marked as dropped or partial.
    """
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
    """Yield the answer of the turn as a block, if `entry` ends a call whose result is the answer."""
    match entry.event:
        case Ended(control=Final(answer)) if answer.strip():
            model = view.turn.model
            yield AnswerBlock(seq=entry.seq, at=entry.at, text=answer, model=model)
        case _:
            return


def message_blocks(
    open_blocks: tuple[Open, ...], entry: Entry, view: View
) -> tuple[tuple[Open, ...], tuple[MessageBlock, ...]]:
    """Return the open blocks after this event, and the messages that are finished blocks.

    A message that is sent during a turn stays open until it is delivered.
    """
    match entry.event:
        case Said() as said_event:
            block = _message_block(entry.seq, entry.at, said_event)
            if view.turn.seq and not is_from_child(said_event.sender):
                waiting = replace(block, later=_is_for_later(said_event, view))
                return (*open_blocks, waiting), ()
            return open_blocks, (block,)
        case Delivered(taken):
            return _take_messages(open_blocks, set(taken))
        case MessageWithdrawn(message):
            left, _ = _take_messages(open_blocks, {message})
            return left, ()
        case Rewound() | Imported() if open_blocks:
            open_seqs = {
                block.seq for block in open_blocks if isinstance(block, MessageBlock)
            }
            waiting_seqs = {message.seq for message in view.conversation.undelivered}
            # The conversation no longer has these messages.
            removed_seqs = open_seqs - waiting_seqs
            return _take_messages(open_blocks, removed_seqs)
        case _:
            return open_blocks, ()


def waiting_messages(view: View) -> Iterator[MessageBlock]:
    """Yield the messages that wait for delivery, except those from subagents."""
    for message in view.conversation.undelivered:
        later = _is_for_later(message.said, view)
        is_open = later or bool(view.turn.seq)  # otherwise the block is finished
        if is_open and not is_from_child(message.said.sender):
            yield replace(_message_block(message.seq, 0.0, message.said), later=later)


def _is_for_later(message: Said, view: View) -> bool:
    """Whether the message is delivered after the turn: it was sent for that, or the turn is
    stopped.
    """
    return message.when == "next" or view.turn.stopped is not None


def is_from_child(sender: str) -> bool:
    return sender.startswith("child-")


def is_from_shell(sender: str) -> bool:
    """Whether the message reports a `!command` that the user ran."""
    return sender == SHELL_SENDER


def _message_block(seq: int, time: float, message: Said) -> MessageBlock:
    return MessageBlock(
        seq=seq, at=time, words=message.text, sender=message.sender, key=message.client_key,
        images=message.images, typed=message.typed,
    )  # fmt: skip


def _take_messages(
    open_blocks: tuple[Open, ...], seqs: set[int]
) -> tuple[tuple[Open, ...], tuple[MessageBlock, ...]]:
    """Return the open blocks that stay, and the messages whose event numbers are in `seqs`."""
    taken = tuple(
        block
        for block in open_blocks
        if isinstance(block, MessageBlock) and block.seq in seqs
    )
    if not taken:
        return open_blocks, ()
    left = tuple(
        block
        for block in open_blocks
        if isinstance(block, CallBlock) or block.seq not in seqs
    )
    return left, taken


def _append_text(
    so_far: tuple[StreamingBlock, ...], kind: Literal["words", "thought"], text: str
) -> tuple[StreamingBlock, ...]:
    """Return the response with `text` added to its last block, or in a new block if the last
    one is of another kind.
    """
    last = so_far[-1] if so_far else None
    if last is None or last.kind != kind:
        return (*so_far, StreamingBlock(kind=kind, text=Growing(text)))
    return (*so_far[:-1], replace(last, text=last.text.plus(text)))


def _join_parts(parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the texts and thoughts of a response, with consecutive parts of one kind joined.

    Providers may divide a thought into several parts, each with its own signature.
    """
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
            # Parts of a different kind are left out.
            pending = part if isinstance(part, Text | Thinking) else None
    if pending is not None:
        yield pending
