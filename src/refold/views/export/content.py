"""What an export contains, whatever its format. Pure.

The blocks are those of the screen (`views.screen`), grouped by turn; a subagent follows the
call that started it. Each format decides how they look.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
from msgspec import Struct

from refold.journal.events.kinds import Said, SessionStarted, SystemPromptSet
from refold.journal.state.conversation import REQUEST_SENDERS
from refold.journal.state.session_tree import Node, spent_below
from refold.values.display import Output
from refold.values.messages import Image, ToolCall
from refold.views.escape import escape_to_one_line
from refold.views.number_format import duration, spent_row
from refold.views.screen.blocks import (
    Block,
    CallBlock,
    MessageBlock,
    NoticeBlock,
    Stage,
    ThinkingBlock,
    TurnEndBlock,
)
from refold.views.screen.screen import Screen, screen_of
from refold.views.wrap import cut

_MAX_TITLE_CELLS = 90
_STAGE_LABELS: Mapping[Stage, str] = {
    "called": "not begun",
    "asked": "waits for a person",
    "running": "not ended",
    "done": "done",
    "failed": "failed",
    "refused": "refused",
    "stopped": "stopped",
    "unknown": "end not known",
}
_MIN_SHOWN_SECONDS = 0.1  # seconds
_SENDER_NAMES: Mapping[str, str] = {
    "person": "Person",
    "parent": "Parent agent",
    "shell": "Shell",
}


class ExportOptions(Struct, frozen=True, kw_only=True):
    """What an export needs besides the events.

    `label` describes a call in one line, `image` returns the bytes of an image, or None if
    they are missing; `when` formats a time.
    """

    label: Callable[[ToolCall], str]
    image: Callable[[Node, Image], bytes | None]
    when: Callable[[float], str]
    thoughts: bool = False
    children: bool = True


class Turn(Struct, frozen=True):
    """A turn. `over` is None while it runs; `within` has the calls made by code, by call.

    `number` 0 holds what came after the last turn, such as a command that the user ran.
    """

    number: int
    title: str
    at: float
    blocks: tuple[Block, ...]
    within: dict[str, tuple[CallBlock, ...]]
    over: TurnEndBlock | None

    @property
    def calls(self) -> int:
        return sum(isinstance(block, CallBlock) for block in self.blocks)


class ExportedSession(Struct, frozen=True):
    """`screen` has the whole session, `children` its subagents by starting call."""

    node: Node
    title: str
    facts: tuple[tuple[str, str], ...]
    turns: tuple[Turn, ...]
    screen: Screen
    children: dict[str, tuple["ExportedSession", ...]]

    @property
    def proper_turns(self) -> tuple[Turn, ...]:
        return tuple(turn for turn in self.turns if turn.number)

    @property
    def orphan_sessions(self) -> tuple["ExportedSession", ...]:
        """The subagents whose call is not shown; they are put at the end."""
        blocks = (block for turn in self.turns for block in turn.blocks)
        shown_ids = {b.call.id for b in blocks if isinstance(b, CallBlock)}
        shown_ids |= {
            b.call.id for t in self.turns for calls in t.within.values() for b in calls
        }
        groups = (group for call, group in self.children.items() if call not in shown_ids)
        return tuple(child for group in groups for child in group)


def export_session(node: Node, options: ExportOptions) -> ExportedSession:
    screen = screen_of(node.entries)
    shown = [
        b for b in screen.blocks if options.thoughts or not isinstance(b, ThinkingBlock)
    ]
    children = node.children if options.children else ()
    known = [child for child in children if child.entries]
    return ExportedSession(
        node,
        title_of(node),
        tuple(
            (name, escape_to_one_line(value))
            for name, value in _facts(node, options)
            if value
        ),
        tuple(_turns(shown, runs=bool(node.view.turn.seq))),
        screen,
        _by_call([export_session(child, options) for child in known]),
    )


def title_of(node: Node) -> str:
    """A title of one line, never empty."""
    born = node.child and node.child.born
    if born is not None:
        return _shorten(f"{born.child}: {born.title or born.task}")
    messages = (entry.event for entry in node.entries if isinstance(entry.event, Said))
    texts = (
        message.typed or message.text
        for message in messages
        if message.sender in REQUEST_SENDERS
    )
    first = next((words for words in texts if words.strip()), "")
    return _shorten(node.view.session.name or first) or f"session {node.session}"


def _facts(node: Node, options: ExportOptions) -> Iterator[tuple[str, str]]:
    view, about = node.view, node.view.session
    first = node.entries[0].at if node.entries else 0.0
    last = node.entries[-1].at if node.entries else 0.0
    briefed = [e.event for e in node.entries if isinstance(e.event, SystemPromptSet)]
    started = [e.event for e in node.entries if isinstance(e.event, SessionStarted)]
    yield "session", node.session
    yield "name", about.name
    yield "tags", ", ".join(about.tags)
    yield "directory", started[0].directory if started else about.directory
    yield "agent", briefed[-1].agent if briefed else about.agent
    yield "model", ", ".join(name for name, _ in view.account.by_model if name)
    yield "from", f"{options.when(first)} to {options.when(last)}"
    spent = spent_below(node)
    yield "used", spent_row(spent) + (" (with its subagents)" if node.children else "")
    source, seq = about.forked
    yield "a copy of", f"{source}, up to event {seq}" if source else ""
    yield "written by", f"refold {about.version}" if about.version else ""


def _turns(blocks: Sequence[Block], *, runs: bool) -> Iterator[Turn]:
    waiting, number = list[Block](), 0
    for block in blocks:
        if isinstance(block, TurnEndBlock):
            number += 1
            yield _turn(number, waiting, block)
            waiting = []
        else:
            waiting.append(block)
    if waiting:
        begun = runs or any(map(_is_of_a_turn, waiting))
        yield _turn(number + 1 if begun else 0, waiting, None)


def _is_of_a_turn(block: Block) -> bool:
    match block:
        case MessageBlock(sender=sender):
            return sender in REQUEST_SENDERS
        case NoticeBlock():
            return False
        case _:
            return True


def _turn(number: int, blocks: Sequence[Block], end: TurnEndBlock | None) -> Turn:
    call_ids = {b.call.id for b in blocks if isinstance(b, CallBlock) and not b.within}
    nested = [b for b in blocks if isinstance(b, CallBlock) and b.within in call_ids]
    nested.sort(key=lambda b: b.within)  # a stable sort: each call's keep their order
    within = {id_: tuple(calls) for id_, calls in groupby(nested, key=lambda b: b.within)}
    inner = set(map(id, nested))
    top = tuple(b for b in blocks if id(b) not in inner)
    messages = [
        b for b in blocks if isinstance(b, MessageBlock) and b.sender in REQUEST_SENDERS
    ]
    words = _shorten(messages[0].user_text) if messages else ""
    began = blocks[0].at if blocks else end.at if end else 0.0
    return Turn(number, words or "(no message)", began, top, within, end)


def _shorten(text: str) -> str:
    return cut(escape_to_one_line(" ".join(text.split())), _MAX_TITLE_CELLS)


def _by_call(children: Sequence[ExportedSession]) -> dict[str, tuple[ExportedSession, ...]]:
    groups = dict[str, tuple[ExportedSession, ...]]()
    for child in children:
        call = child.node.child.born.call_id if child.node.child else ""
        groups[call] = (*groups.get(call, ()), child)
    return groups


def sender_name(sender: str) -> str:
    """The name of a sender."""
    return _SENDER_NAMES.get(sender, sender)


def call_outcome(block: CallBlock) -> str:
    """The result of a call. Only the exit code shows that a command failed."""
    for part in block.shown:
        if block.stage == "done" and isinstance(part, Output) and part.code != 0:
            return "ended early" if part.code is None else f"exit code {part.code}"
    return _STAGE_LABELS[block.stage]


def duration_text(block: CallBlock) -> str:
    """The duration of a call, or "" if it is short or unknown."""
    if not (block.began and block.ended) or block.ended - block.began < _MIN_SHOWN_SECONDS:
        return ""
    return duration(block.ended - block.began)


def argument_items(call: ToolCall) -> Iterator[tuple[str, str, bool]]:
    """Each argument: name, value, and whether the value is text and not JSON."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        yield "arguments", bytes(call.arguments).decode(errors="replace"), True
        return
    for name, value in arguments.items():
        if isinstance(value, str):
            yield name, value, True
        else:
            yield name, msgspec.json.format(msgspec.json.encode(value)).decode(), False
