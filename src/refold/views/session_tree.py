"""A session and its subagents: agent, status, progress, usage. Pure.

As lines that fit the screen, and as a document; docs/reference/tree.md describes its fields.
`node_detail` shows one node in full, and `timeline` every span.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from refold.journal.state.fold import View
from refold.journal.state.session_tree import Node
from refold.values.messages import ToolCall
from refold.values.modes import Outcome
from refold.values.usage import Spent
from refold.views.activity import (
    Activity,
    LeafCounts,
    SideCall,
    activity_of,
    leaf_counts,
    side_call_outcome,
    spent_by,
)
from refold.views.cost import Used, usage_fields
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import duration, spent_row
from refold.views.styled import Line, Piece, Style
from refold.views.wrap import cells, cut

# The outcome of the newest turn, or: no message yet; a turn is running; a turn waits for a
# person; the process died in a turn; nothing is known.
Status: TypeAlias = Outcome | Literal["new", "running", "waiting", "cut_off", "missing"]
Labels: TypeAlias = Callable[[ToolCall], str]
_UNDER_WAY = ("running", "waiting")
_GOOD_STATES = ("answered", "final", "plan_ready", "done")
_MAX_TITLE_CHARS = 400  # in a document; a line shows what fits


class TreeRow(Struct, frozen=True):
    """A node as it is shown. `total` and `all_leaves` include all nodes below it."""

    node: Node
    spans: Activity
    status: Status
    title: str
    seconds: float
    activity: str  # what an open turn does at this moment
    leaves: LeafCounts
    total: Spent
    all_leaves: LeafCounts
    below: tuple["TreeRow", ...] = ()

    @property
    def agent(self) -> str:
        return agent_of(self.node)

    @property
    def sessions(self) -> int:
        return 1 + sum(row.sessions for row in self.below)


def tree_row(node: Node, now: float, label: Labels) -> TreeRow:
    """Return the node and its subagents with status and usage at the time `now`.

    `label` describes a call in one line.
    """
    below = tuple(tree_row(child, now, label) for child in node.children)
    did = activity_of(node.entries)
    own = leaf_counts(did)
    state = node_status(node)
    return TreeRow(
        node=node,
        spans=did,
        status=state,
        title=title_of(node),
        seconds=seconds_of(node, did, now),
        activity=current_activity(node.view, did, label) if state in _UNDER_WAY else "",
        leaves=own,
        total=sum((child.total for child in below), node.spent),
        all_leaves=sum((child.all_leaves for child in below), own),
        below=below,
    )


def node_status(node: Node) -> Status:
    view, end = node.view, node.child.end if node.child else None
    if not node.entries:
        return end.outcome if end else "missing"
    if view.turn.seq:
        if not node.written:
            return "cut_off"
        return (
            "waiting"
            if view.conversation.waiting_calls or view.children.asks
            else "running"
        )
    return view.turn.outcome or (end.outcome if end else "new")


def agent_of(node: Node) -> str:
    born = node.child.born.agent if node.child else ""
    return born or node.view.conversation.system_prompt.agent or node.view.session.agent


def title_of(node: Node) -> str:
    text = node.child.born.task if node.child else node.view.session.title
    return " ".join(text[:_MAX_TITLE_CHARS].split())


def seconds_of(node: Node, spans: Activity, now: float) -> float:
    """The duration of a node's turns; an open turn counts until now."""
    if spans.since is None:
        return spans.seconds
    until = now if node.written else spans.last
    return spans.seconds + max(0.0, until - spans.since)


def current_activity(view: View, spans: Activity, label: Labels) -> str:
    """The current activity of the open turn: a question, a running call or a model call."""
    if asked := view.conversation.waiting_calls:
        return f"waits for a person: {label(asked[0].call)}"
    if asks := view.children.asks:
        return f"{asks[0].child} waits for a person: {label(asks[0].call)}"
    running = [
        c
        for c in (*view.conversation.nested, *view.conversation.calls)
        if c.stage == "started"
    ]
    if running:
        others = f" and {len(running) - 1} more" if len(running) > 1 else ""
        return f"{label(running[0].call)}{others}"
    open_ = [leaf for leaf in spans.leaves if leaf.end is None]
    if open_:
        return f"{len(open_)} model calls by code are running"
    return "the model is called" if view.turn.open_request else ""


def tree_lines(
    root: TreeRow, width: int, *, every_leaf: bool = False, symbols: bool = True
) -> list[Line]:
    """Return a line or more for each node; `symbols` false: only ASCII."""
    lines = [cut_line(row, width) for row in _node_lines(root, "", "", every_leaf, symbols)]
    if not root.below:
        return lines
    counted = f"{root.sessions} sessions"
    asked = _leaves(root.all_leaves)
    parts = [counted, *([asked] if asked else []), spent_row(root.total)]
    return [*lines, cut_line((("strong", f"in all  {' · '.join(parts)}"),), width)]


class TotalUsed(Used, frozen=True, kw_only=True):
    """The usage of a node and all nodes below it."""

    leaves: LeafCounts
    sessions: int


class LeafDocument(Used, frozen=True, kw_only=True):
    """A side call, without its answer. `call` is the call whose code made it."""

    address: str
    status: str
    purpose: str
    model: str
    words: str
    call: str
    seq: int
    at: float
    seconds: float | None
    remembered: bool
    failed: str


class TreeDocument(Used, frozen=True, kw_only=True):
    """A node of the tree. `total` is of it and all below it; `type` is in the root only."""

    type: Literal["tree"] | UnsetType = UNSET
    address: str
    session_id: str
    agent: str
    model: str
    status: Status
    title: str
    steps: int
    calls: int  # of tools
    leaves: LeafCounts
    seconds: float
    activity: str
    total: TotalUsed
    damage: str
    leaf_nodes: Sequence[LeafDocument] | UnsetType = UNSET
    children: "Sequence[TreeDocument] | UnsetType" = UNSET


def tree_document(root: TreeRow, *, every_leaf: bool = False) -> TreeDocument:
    """`root` and all nodes below it."""
    leaves = [leaf_document(root.node, leaf) for leaf in root.spans.leaves]
    below = [tree_document(row, every_leaf=every_leaf) for row in root.below]
    document = row_document(root)
    return replace(document, leaf_nodes=leaves if every_leaf else UNSET, children=below)


def row_document(row: TreeRow) -> TreeDocument:
    """A node without those below it."""
    node = row.node
    return TreeDocument(
        address=node.address, session_id=node.session, agent=row.agent,
        model=node.view.turn.model or node.view.conversation.system_prompt.model,
        status=row.status, title=row.title, steps=len(row.spans.steps),
        calls=len(row.spans.calls), leaves=row.leaves, seconds=round(row.seconds, 3),
        activity=row.activity, damage=node.damage,
        total=TotalUsed(
            leaves=row.all_leaves, sessions=row.sessions, **usage_fields(row.total)
        ),
        **usage_fields(node.spent),
    )  # fmt: skip


def leaf_document(node: Node, leaf: SideCall) -> LeafDocument:
    end = leaf.end
    return LeafDocument(
        address=f"{node.address}/{leaf.id}", status=span_state(side_call_outcome(leaf), node),
        purpose=leaf.reserved.purpose,
        model=(end.model if end else "") or leaf.reserved.model,
        words=leaf.reserved.prompt, call=leaf.reserved.call_id, seq=leaf.seq, at=leaf.at,
        seconds=None if leaf.ended is None else round(leaf.ended - leaf.at, 3),
        remembered=bool(end and end.cached), failed=end.failed if end else "",
        **usage_fields(spent_by(leaf)),
    )  # fmt: skip


def span_state(end: str, node: Node) -> str:
    """The result of a span; without one, "running" or "cut_off"."""
    if end:
        return end
    return "running" if node.written and node.view.turn.seq else "cut_off"


def style_of(state: str) -> Style:
    if state in _GOOD_STATES:
        return "good"
    if state in _UNDER_WAY:
        return "accent"
    return "bad" if state in ("failed", "missing", "cut_off", "unknown") else "warn"


def _node_lines(
    row: TreeRow, prefix: str, indent: str, every_leaf: bool, symbols: bool
) -> Iterator[Line]:
    """The lines of a node; `prefix` and `indent` are the tree's lines drawn before them."""
    last, other, under = ("└─ ", "├─ ", "│  ") if symbols else ("`- ", "|- ", "|  ")
    stem = indent + (under if row.below else "   ")
    yield _head(row, prefix)
    yield (("dim", stem), ("dim", _usage_text(row)))
    if row.activity:
        yield (("dim", stem), ("accent", f"now: {escape_to_one_line(row.activity)}"))
    if row.node.damage:
        yield (("dim", stem), ("bad", f"damaged: {escape_to_one_line(row.node.damage)}"))
    if every_leaf:
        for leaf in row.spans.leaves:
            yield (("dim", stem), *_leaf(row.node, leaf))
    for number, child in enumerate(row.below, start=1):
        end = number == len(row.below)
        yield from _node_lines(
            child,
            indent + (last if end else other),
            indent + ("   " if end else under),
            every_leaf,
            symbols,
        )


def _head(row: TreeRow, prefix: str) -> Line:
    name = row.node.name
    if row.node.child is None:
        name = f"{name}  {escape_to_one_line(row.node.session)}"
    head: list[Piece] = [("dim", prefix), ("strong", name)]
    if row.agent:
        head.append(("plain", f"  {escape_to_one_line(row.agent)}"))
    head.append((style_of(row.status), f"  {row.status.replace('_', ' ')}"))
    return (*head, ("plain", f"  {visible(row.title)}"))


def _usage_text(row: TreeRow) -> str:
    parts = [
        _count_text(len(row.spans.steps), "step"),
        _count_text(len(row.spans.calls), "call"),
    ]
    if asked := _leaves(row.leaves):
        parts.append(asked)
    parts.append(spent_row(row.node.spent))
    if row.seconds:
        parts.append(duration(row.seconds))
    return " · ".join(parts)


def _leaves(leaves: LeafCounts) -> str:
    """As in: leaves 48 done, 2 failed. Empty if there are none."""
    counts = ((leaves.done, "done"), (leaves.failed, "failed"), (leaves.open, "open"))
    text = ", ".join(f"{count} {label}" for count, label in counts if count)
    remembered = f" ({leaves.remembered} remembered)" if leaves.remembered else ""
    return f"leaves {text}{remembered}" if text else ""


def _leaf(node: Node, leaf: SideCall) -> Iterator[Piece]:
    end = leaf.end
    outcome = span_state(side_call_outcome(leaf), node)
    model = (end.model if end else "") or leaf.reserved.model
    words = escape_to_one_line(" ".join(leaf.reserved.prompt.split()))
    yield ("plain", leaf.id)
    yield (style_of(outcome), f"  {outcome.replace('_', ' ')}")
    yield ("dim", f"  {escape_to_one_line(model)}")
    if leaf.ended is not None:
        yield ("dim", f"  {duration(leaf.ended - leaf.at)}")
    if end is not None and end.cached:
        yield ("dim", "  remembered")
    yield ("plain", f"  {words}")
    if end is not None and end.failed:
        yield ("bad", f"  {escape_to_one_line(end.failed)}")


def _count_text(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def cut_line(line: Line, width: int) -> Line:
    """Cut the line to `width` cells, from its end."""
    left, pieces = width, list[Piece]()
    for style, text in line:
        part = cut(text, left)
        left -= cells(part)
        pieces.append((style, part))
        if part != text:
            break
    return tuple(pieces)
