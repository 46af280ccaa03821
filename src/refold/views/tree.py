"""A session and all below it: who works on what, how far it is, what it used. Pure.

As lines that fit, and as a document; docs/tree.md says what its fields are. A single
node whole is `node`'s business, and every call in its time `trace`'s.
"""

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from refold.journal.fold import View
from refold.journal.tree import Node
from refold.values.messages import ToolCall
from refold.values.outcome import Outcome
from refold.values.usage import Spent
from refold.views.cells import cells, cut
from refold.views.counts import duration, spent_row
from refold.views.deeds import Aside, Deeds, Leaves, deeds, fate, leaves, spent_by
from refold.views.escape import on_one_line, visible
from refold.views.styled import Line, Piece, Style

# Besides the outcome of its newest turn: nothing was asked of it yet; a turn is under
# way; one is, and waits for a person; one was when the process died; nothing is known.
Status: TypeAlias = Outcome | Literal["new", "running", "waiting", "cut_off", "missing"]
Labels: TypeAlias = Callable[[ToolCall], str]
_UNDER_WAY = ("running", "waiting")
_GOOD = ("answered", "final", "plan_ready", "done")
_TITLE = 400  # characters; a line shows what has room


class TreeRow(Struct, frozen=True):
    """What is shown of a node. `total` is of it and all below it; so is `all_leaves`."""

    node: Node
    did: Deeds
    status: Status
    title: str
    seconds: float
    activity: str  # what an open turn does at this moment
    leaves: Leaves
    total: Spent
    all_leaves: Leaves
    below: tuple["TreeRow", ...] = ()

    @property
    def agent(self) -> str:
        return agent_of(self.node)

    @property
    def sessions(self) -> int:
        return 1 + sum(each.sessions for each in self.below)


def rows(node: Node, now: float, label: Labels) -> TreeRow:
    """`now` is the time; `label` says in a line what a call does."""
    below = tuple(rows(each, now, label) for each in node.children)
    did = deeds(node.entries)
    own = leaves(did)
    state = status(node)
    return TreeRow(
        node=node,
        did=did,
        status=state,
        title=title_of(node),
        seconds=seconds_of(node, did, now),
        activity=activity(node.view, did, label) if state in _UNDER_WAY else "",
        leaves=own,
        total=sum((each.total for each in below), node.spent),
        all_leaves=sum((each.all_leaves for each in below), own),
        below=below,
    )


def status(node: Node) -> Status:
    view, end = node.view, node.child.end if node.child else None
    if not node.entries:
        return end.outcome if end else "missing"
    if view.turn.seq:
        if not node.written:
            return "cut_off"
        return "waiting" if view.talk.asked or view.family.asks else "running"
    return view.turn.outcome or (end.outcome if end else "new")


def agent_of(node: Node) -> str:
    born = node.child.born.agent if node.child else ""
    return born or node.view.talk.briefed.agent or node.view.about.agent


def title_of(node: Node) -> str:
    given = node.child.born.task if node.child else node.view.about.title
    return " ".join(given[:_TITLE].split())


def seconds_of(node: Node, did: Deeds, now: float) -> float:
    """How long its turns took; of an open one, so far."""
    if did.since is None:
        return did.seconds
    until = now if node.written else did.last
    return did.seconds + max(0.0, until - did.since)


def activity(view: View, did: Deeds, label: Labels) -> str:
    """What the open turn does: what it waits for, what runs, or that the model is asked."""
    if asked := view.talk.asked:
        return f"waits for a person: {label(asked[0].call)}"
    if asks := view.family.asks:
        return f"{asks[0].child} waits for a person: {label(asks[0].call)}"
    running = [c for c in (*view.talk.within, *view.talk.calls) if c.stage == "started"]
    if running:
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        return f"{label(running[0].call)}{more}"
    open_ = [each for each in did.leaves if each.end is None]
    if open_:
        return f"{len(open_)} leaves are asked"
    return "the model is asked" if view.turn.asking else ""


def tree_lines(
    root: TreeRow, room: int, *, every_leaf: bool = False, signs: bool = True
) -> list[Line]:
    """`signs` false: ASCII alone."""
    found = [fit(each, room) for each in _drawn(root, "", "", every_leaf, signs)]
    if not root.below:
        return found
    counted = f"{root.sessions} sessions"
    asked = _leaves(root.all_leaves)
    parts = [counted, *([asked] if asked else []), spent_row(root.total)]
    return [*found, fit((("strong", f"in all  {' · '.join(parts)}"),), room)]


def tree_document(root: TreeRow, *, every_leaf: bool = False) -> dict[str, object]:
    """`root` and below it. `total` is of a node and all below it."""
    return {
        **row_document(root),
        **(
            {"leaf_nodes": [leaf_document(root.node, each) for each in root.did.leaves]}
            if every_leaf
            else {}
        ),
        "children": [tree_document(each, every_leaf=every_leaf) for each in root.below],
    }


def row_document(row: TreeRow) -> dict[str, object]:
    """A node without what is below it."""
    node = row.node
    return {
        "address": node.address, "session_id": node.session, "agent": row.agent,
        "model": node.view.turn.model or node.view.talk.briefed.model,
        "status": row.status, "title": row.title, "steps": len(row.did.steps),
        "calls": len(row.did.calls), "leaves": leaves_document(row.leaves),
        "seconds": round(row.seconds, 3), "activity": row.activity,
        **sum_document(node.spent),
        "total": {
            **sum_document(row.total), "leaves": leaves_document(row.all_leaves),
            "sessions": row.sessions,
        },
        "damage": node.damage,
    }  # fmt: skip


def leaf_document(node: Node, leaf: Aside) -> dict[str, object]:
    """A model that was asked beside the talk, without its answer."""
    end = leaf.end
    return {
        "address": f"{node.address}/{leaf.id}", "status": state(fate(leaf), node),
        "purpose": leaf.reserved.purpose,
        "model": (end.model if end else "") or leaf.reserved.model,
        "words": leaf.reserved.words, "call": leaf.reserved.call_id, "seq": leaf.seq,
        "at": leaf.at,
        "seconds": None if leaf.ended is None else round(leaf.ended - leaf.at, 3),
        "remembered": bool(end and end.remembered), "failed": end.failed if end else "",
        **sum_document(spent_by(leaf)),
    }  # fmt: skip


def sum_document(spent: Spent) -> dict[str, object]:
    """What was used. `answers` are those of models."""
    return {
        "answers": spent.answers, "usage": msgspec.to_builtins(spent.usage),
        "cost": spent.cost,  # None is not zero
        "known_cost": spent.dollars, "unpriced": spent.unpriced,
    }  # fmt: skip


def leaves_document(found: Leaves) -> dict[str, int]:
    return {
        "done": found.done, "failed": found.failed, "open": found.open,
        "remembered": found.remembered,
    }  # fmt: skip


def state(ended: str, node: Node) -> str:
    """How a deed ended; of one that did not: whether it still can."""
    if ended:
        return ended
    return "running" if node.written and node.view.turn.seq else "cut_off"


def style_of(state: str) -> Style:
    if state in _GOOD:
        return "good"
    if state in _UNDER_WAY:
        return "accent"
    return "bad" if state in ("failed", "missing", "cut_off", "unknown") else "warn"


def _drawn(
    row: TreeRow, here: str, below: str, every_leaf: bool, signs: bool
) -> Iterator[Line]:
    """The lines of a node; `here` and `below` are what is drawn before them."""
    last, other, under = ("└─ ", "├─ ", "│  ") if signs else ("`- ", "|- ", "|  ")
    stem = below + (under if row.below else "   ")
    yield _head(row, here)
    yield (("dim", stem), ("dim", _used(row)))
    if row.activity:
        yield (("dim", stem), ("accent", f"now: {on_one_line(row.activity)}"))
    if row.node.damage:
        yield (("dim", stem), ("bad", f"damaged: {on_one_line(row.node.damage)}"))
    if every_leaf:
        for leaf in row.did.leaves:
            yield (("dim", stem), *_leaf(row.node, leaf))
    for at, each in enumerate(row.below, start=1):
        end = at == len(row.below)
        yield from _drawn(
            each,
            below + (last if end else other),
            below + ("   " if end else under),
            every_leaf,
            signs,
        )


def _head(row: TreeRow, here: str) -> Line:
    name = row.node.name
    if row.node.child is None:
        name = f"{name}  {on_one_line(row.node.session)}"
    head: list[Piece] = [("dim", here), ("strong", name)]
    if row.agent:
        head.append(("plain", f"  {on_one_line(row.agent)}"))
    head.append((style_of(row.status), f"  {row.status.replace('_', ' ')}"))
    return (*head, ("plain", f"  {visible(row.title)}"))


def _used(row: TreeRow) -> str:
    parts = [_many(len(row.did.steps), "step"), _many(len(row.did.calls), "call")]
    if asked := _leaves(row.leaves):
        parts.append(asked)
    parts.append(spent_row(row.node.spent))
    if row.seconds:
        parts.append(duration(row.seconds))
    return " · ".join(parts)


def _leaves(found: Leaves) -> str:
    """ "leaves 48 done, 2 failed"; "" where there are none."""
    counts = ((found.done, "done"), (found.failed, "failed"), (found.open, "open"))
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    remembered = f" ({found.remembered} remembered)" if found.remembered else ""
    return f"leaves {said}{remembered}" if said else ""


def _leaf(node: Node, leaf: Aside) -> Iterator[Piece]:
    end = leaf.end
    how = state(fate(leaf), node)
    model = (end.model if end else "") or leaf.reserved.model
    words = on_one_line(" ".join(leaf.reserved.words.split()))
    yield ("plain", leaf.id)
    yield (style_of(how), f"  {how.replace('_', ' ')}")
    yield ("dim", f"  {on_one_line(model)}")
    if leaf.ended is not None:
        yield ("dim", f"  {duration(leaf.ended - leaf.at)}")
    if end is not None and end.remembered:
        yield ("dim", "  remembered")
    yield ("plain", f"  {words}")
    if end is not None and end.failed:
        yield ("bad", f"  {on_one_line(end.failed)}")


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def fit(line: Line, room: int) -> Line:
    """The line on `room` cells: what comes last gives way."""
    left, kept = room, list[Piece]()
    for style, text in line:
        part = cut(text, left)
        left -= cells(part)
        kept.append((style, part))
        if part != text:
            break
    return tuple(kept)
