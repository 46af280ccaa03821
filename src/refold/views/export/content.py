"""Collects the content of an export, which is the same for all formats. Pure.

The blocks are those of the screen (`views.screen`), grouped by turn. Each format decides how
they look. A subagent follows the call that started it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

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
_MIN_SHOWN_SECONDS = 0.1  # a shorter duration is not shown
_SENDER_NAMES: Mapping[str, str] = {
    "person": "Person",
    "parent": "Parent agent",
    "shell": "Shell",
}


class ExportOptions(Struct, frozen=True, kw_only=True):
    """The functions that an export needs, and what it includes.

    `label` describes a call in one line. `image` returns the bytes of an image, or None if they
    are missing. `when` formats a time. `thoughts` and `children` include thinking and
    subagents.
    """

    label: Callable[[ToolCall], str]
    image: Callable[[Node, Image], bytes | None]
    when: Callable[[float], str]
    thoughts: bool = False
    children: bool = True


class Turn(Struct, frozen=True):
    """The blocks of one turn.

    `over` is the block of its end, or None while it runs. `within` has the calls that code
    made, by the id of the call that ran the code. A turn with `number` 0 has the blocks after
    the last turn, such as a command that the user ran.
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
    """A session as it is exported.

    `screen` has all its blocks. `children` has its subagents by the id of the call that started
    them. `facts` are pairs of name and value.
    """

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
        """The subagents whose call is not among the blocks. They are placed at the end."""
        shown_ids = set[str]()
        for turn in self.turns:
            for blocks in (turn.blocks, *turn.within.values()):
                calls = (block for block in blocks if isinstance(block, CallBlock))
                shown_ids |= {block.call.id for block in calls}
        return tuple(
            child
            for call_id, children in self.children.items()
            if call_id not in shown_ids
            for child in children
        )


def export_session(node: Node, options: ExportOptions) -> ExportedSession:
    """Return the content of a session for an export, with its subagents."""
    screen = screen_of(node.entries)
    shown = [
        block
        for block in screen.blocks
        if options.thoughts or not isinstance(block, ThinkingBlock)
    ]
    children = node.children if options.children else ()
    with_journal = [child for child in children if child.entries]
    facts = tuple(
        (name, escape_to_one_line(value)) for name, value in _facts(node, options) if value
    )
    return ExportedSession(
        node=node,
        title=title_of(node),
        facts=facts,
        turns=tuple(_turns(shown, runs=bool(node.view.turn.seq))),
        screen=screen,
        children=_by_call([export_session(child, options) for child in with_journal]),
    )


def title_of(node: Node) -> str:
    """Return a title for the session, on one line. It is never empty."""
    if node.child is not None:  # a subagent
        born = node.child.born
        return _shorten(f"{born.child}: {born.title or born.task}")
    messages = (entry.event for entry in node.entries if isinstance(entry.event, Said))
    texts = (
        message.typed or message.text
        for message in messages
        if message.sender in REQUEST_SENDERS
    )
    first_text = next((text for text in texts if text.strip()), "")
    title = _shorten(node.view.session.name or first_text)
    return title or f"session {node.session}"


def _facts(node: Node, options: ExportOptions) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each fact. An unknown value is ""."""
    view, about = node.view, node.view.session
    first_time = node.entries[0].at if node.entries else 0.0
    last_time = node.entries[-1].at if node.entries else 0.0
    events = [entry.event for entry in node.entries]
    system_prompts = [event for event in events if isinstance(event, SystemPromptSet)]
    started = [event for event in events if isinstance(event, SessionStarted)]
    yield "session", node.session
    yield "name", about.name
    yield "tags", ", ".join(about.tags)
    yield "directory", started[0].directory if started else about.directory
    yield "agent", system_prompts[-1].agent if system_prompts else about.agent
    yield "model", ", ".join(name for name, _ in view.account.by_model if name)
    yield "from", f"{options.when(first_time)} to {options.when(last_time)}"
    spent = spent_below(node)
    yield "used", spent_row(spent) + (" (with its subagents)" if node.children else "")
    source, seq = about.forked
    yield "a copy of", f"{source}, up to event {seq}" if source else ""
    yield "written by", f"refold {about.version}" if about.version else ""


def _turns(blocks: Sequence[Block], *, runs: bool) -> Iterator[Turn]:
    """Yield the blocks grouped by turn. If `runs`, the last turn has not ended.

    Blocks after the last turn are yielded as a turn with the number 0.
    """
    waiting = list[Block]()  # the blocks since the end of the last turn
    number = 0
    for block in blocks:
        if isinstance(block, TurnEndBlock):
            number += 1
            yield _turn(number, waiting, block)
            waiting = []
        else:
            waiting.append(block)
    if waiting:
        in_turn = runs or any(map(_is_of_a_turn, waiting))
        yield _turn(number + 1 if in_turn else 0, waiting, end=None)


def _is_of_a_turn(block: Block) -> bool:
    """Whether the block belongs to a turn. Notices and commands of the user may be outside of
    turns.
    """
    match block:
        case MessageBlock(sender=sender):
            return sender in REQUEST_SENDERS
        case NoticeBlock():
            return False
        case _:
            return True


def _turn(number: int, blocks: Sequence[Block], end: TurnEndBlock | None) -> Turn:
    """Return a turn. Calls made by the code of another call are grouped by that call's id."""
    calls = [block for block in blocks if isinstance(block, CallBlock)]
    top_ids = {call.call.id for call in calls if not call.within}
    top = list[Block]()
    nested = dict[str, list[CallBlock]]()
    for block in blocks:
        if isinstance(block, CallBlock) and block.within in top_ids:
            nested.setdefault(block.within, []).append(block)
        else:
            top.append(block)
    within = {id_: tuple(group) for id_, group in nested.items()}
    requests = (
        block
        for block in blocks
        if isinstance(block, MessageBlock) and block.sender in REQUEST_SENDERS
    )
    request = next(requests, None)
    title = _shorten(request.user_text) if request else ""
    began = 0.0
    if blocks:
        began = blocks[0].at
    elif end:
        began = end.at
    return Turn(number, title or "(no message)", began, tuple(top), within, end)


def _shorten(text: str) -> str:
    return cut(escape_to_one_line(" ".join(text.split())), _MAX_TITLE_CELLS)


def _by_call(children: Sequence[ExportedSession]) -> dict[str, tuple[ExportedSession, ...]]:
    """Return the subagents by the id of the call that started them."""
    groups = dict[str, tuple[ExportedSession, ...]]()
    for child in children:
        call = child.node.child.born.call_id if child.node.child else ""
        groups[call] = (*groups.get(call, ()), child)
    return groups


def sender_name(sender: str) -> str:
    """Return the name of a message's sender as it is written in the export."""
    return _SENDER_NAMES.get(sender, sender)


def call_outcome(block: CallBlock) -> str:
    """Return the outcome of a call in a few words.

    For a failed command, the outcome is its exit code, or "ended early" if it has none. (The
    stage of such a call is "done", because its result was passed to the model.)
    """
    if block.stage == "done":
        for part in block.shown:
            if isinstance(part, Output) and part.code != 0:
                return "ended early" if part.code is None else f"exit code {part.code}"
    return _STAGE_LABELS[block.stage]


def duration_text(block: CallBlock) -> str:
    """Return the duration of a call; "" if it is short or unknown."""
    if not block.began or not block.ended:
        return ""
    seconds = block.ended - block.began
    return duration(seconds) if seconds >= _MIN_SHOWN_SECONDS else ""


def argument_items(call: ToolCall) -> Iterator[tuple[str, str, bool]]:
    """Yield each argument: its name, its value, and whether the value is text and not JSON."""
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
