"""What a document tells of a session, whatever it is written in. Pure.

The blocks are those of every screen (`views.screen`), parted into turns; the children are
told where the call stands that began them. How it looks is the business of each form.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from refold.journal.events import Briefed, Said, SessionStarted
from refold.journal.talk import WISHING
from refold.journal.tree import Node, spent_below
from refold.values.messages import Image, ToolCall
from refold.views.cells import cut
from refold.views.counts import spent_row
from refold.views.escape import on_one_line
from refold.views.screen.blocks import Block, Called, Heard, News, Thought, TurnOver
from refold.views.screen.screen import Screen, screen_of

_TITLE = 90  # cells


class Means(Struct, frozen=True, kw_only=True):
    """What a document needs besides the events.

    `label` says in a line what a call does, `picture` gives the bytes of one, or None
    where they are gone; `when` writes a time as people here do.
    """

    label: Callable[[ToolCall], str]
    picture: Callable[[Node, Image], bytes | None]
    when: Callable[[float], str]
    thoughts: bool = False
    children: bool = True


class Turn(Struct, frozen=True):
    """`over` is None while it runs. Calls that code made stand `within` the others.

    `number` 0 is none: it is what came after the last one, such as a command that a person
    ran, and waits to be told with the next words.
    """

    number: int
    title: str
    at: float
    blocks: tuple[Block, ...]
    within: dict[str, tuple[Called, ...]]
    over: TurnOver | None

    @property
    def calls(self) -> int:
        return sum(isinstance(block, Called) for block in self.blocks)


class Story(Struct, frozen=True):
    """`screen` is all of it; `below` the children, by the id of the call that began each."""

    node: Node
    title: str
    facts: tuple[tuple[str, str], ...]
    turns: tuple[Turn, ...]
    screen: Screen
    below: dict[str, tuple["Story", ...]]

    @property
    def numbered(self) -> tuple[Turn, ...]:
        return tuple(turn for turn in self.turns if turn.number)

    @property
    def lost(self) -> tuple["Story", ...]:
        """Children whose call is not told of: they stand at the end."""
        blocks = (block for turn in self.turns for block in turn.blocks)
        told = {b.call.id for b in blocks if isinstance(b, Called)}
        told |= {b.call.id for t in self.turns for each in t.within.values() for b in each}
        away = (found for call, found in self.below.items() if call not in told)
        return tuple(story for found in away for story in found)


def story(node: Node, means: Means) -> Story:
    screen = screen_of(node.entries)
    shown = [b for b in screen.blocks if means.thoughts or not isinstance(b, Thought)]
    children = node.children if means.children else ()
    known = [child for child in children if child.entries]
    return Story(
        node,
        title_of(node),
        tuple((name, on_one_line(value)) for name, value in _facts(node, means) if value),
        tuple(_turns(shown, runs=bool(node.view.turn.seq))),
        screen,
        _by_call([story(child, means) for child in known]),
    )


def title_of(node: Node) -> str:
    """In one line, never empty."""
    born = node.child and node.child.born
    if born is not None:
        return _short(f"{born.child}: {born.title or born.task}")
    said = (entry.event for entry in node.entries if isinstance(entry.event, Said))
    wishes = (each.typed or each.words for each in said if each.sender in WISHING)
    first = next((words for words in wishes if words.strip()), "")
    return _short(node.view.about.name or first) or f"session {node.session}"


def _facts(node: Node, means: Means) -> Iterator[tuple[str, str]]:
    view, about = node.view, node.view.about
    first = node.entries[0].at if node.entries else 0.0
    last = node.entries[-1].at if node.entries else 0.0
    briefed = [e.event for e in node.entries if isinstance(e.event, Briefed)]
    started = [e.event for e in node.entries if isinstance(e.event, SessionStarted)]
    yield "session", node.session
    yield "name", about.name
    yield "tags", ", ".join(about.tags)
    yield "directory", started[0].directory if started else about.directory
    yield "agent", briefed[-1].agent if briefed else about.agent
    yield "model", ", ".join(name for name, _ in view.account.by_model if name)
    yield "from", f"{means.when(first)} to {means.when(last)}"
    spent = spent_below(node)
    yield "used", spent_row(spent) + (" (with its children)" if node.children else "")
    source, seq = about.forked
    yield "a copy of", f"{source}, up to event {seq}" if source else ""
    yield "written by", f"refold {about.refold}" if about.refold else ""


def _turns(blocks: Sequence[Block], *, runs: bool) -> Iterator[Turn]:
    waiting, number = list[Block](), 0
    for block in blocks:
        if isinstance(block, TurnOver):
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
        case Heard(sender=sender):
            return sender in WISHING
        case News():
            return False
        case _:
            return True


def _turn(number: int, blocks: Sequence[Block], over: TurnOver | None) -> Turn:
    here = {b.call.id for b in blocks if isinstance(b, Called) and not b.within}
    made = [b for b in blocks if isinstance(b, Called) and b.within in here]
    made.sort(key=lambda b: b.within)  # a stable sort: each call's keep their order
    within = {id_: tuple(calls) for id_, calls in groupby(made, key=lambda b: b.within)}
    inner = set(map(id, made))
    top = tuple(b for b in blocks if id(b) not in inner)
    said = [b for b in blocks if isinstance(b, Heard) and b.sender in WISHING]
    words = _short(said[0].said) if said else ""
    at = blocks[0].at if blocks else over.at if over else 0.0
    return Turn(number, words or "(no words)", at, top, within, over)


def _short(words: str) -> str:
    return cut(on_one_line(" ".join(words.split())), _TITLE)


def _by_call(children: Sequence[Story]) -> dict[str, tuple[Story, ...]]:
    found = dict[str, tuple[Story, ...]]()
    for child in children:
        call = child.node.child.born.call_id if child.node.child else ""
        found[call] = (*found.get(call, ()), child)
    return found
