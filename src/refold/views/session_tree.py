"""Shows a session and its subagents as a tree: agent, status, progress, usage. Pure.

The tree is shown as lines or as a JSON document; docs/reference/tree.md describes its fields.
`node_detail` shows one node in full, `timeline` shows every span.
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
from refold.views.styled import Line, Piece, Style, line
from refold.views.wrap import cells, cut

# The outcome of the newest turn, or a state. new: no message came yet; running: a turn is
# running; waiting: a turn waits for a person; cut_off: the process exited in a turn;
# missing: nothing is known.
Status: TypeAlias = Outcome | Literal["new", "running", "waiting", "cut_off", "missing"]
Labels: TypeAlias = Callable[[ToolCall], str]
_UNDER_WAY = ("running", "waiting")
_GOOD_STATES = ("answered", "final", "plan_ready", "done")
_MAX_TITLE_CHARS = 400  # in a document; a line shows what fits


class TreeRow(Struct, frozen=True):
    """A node of the tree, as it is shown. `leaves` counts the model calls that its code made.

    `total` and `all_leaves` include all nodes below it.
    """

    node: Node
    spans: Activity
    status: Status
    title: str
    seconds: float
    activity: str  # what its open turn does now, or ""
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
    """Return a node and all nodes below it, with status and usage at the time `now`.

    `label` describes a call in one line.
    """
    below = tuple(tree_row(child, now, label) for child in node.children)
    spans = activity_of(node.entries)
    own_leaves = leaf_counts(spans)
    status = node_status(node)
    return TreeRow(
        node=node,
        spans=spans,
        status=status,
        title=title_of(node),
        seconds=seconds_of(node, spans, now),
        activity=current_activity(node.view, spans, label) if status in _UNDER_WAY else "",
        leaves=own_leaves,
        total=sum((child.total for child in below), node.spent),
        all_leaves=sum((child.all_leaves for child in below), own_leaves),
        below=below,
    )


def node_status(node: Node) -> Status:
    """Return the outcome of the node's newest turn, or one of the states that `Status` lists."""
    view = node.view
    end = node.child.end if node.child else None
    if not node.entries:
        return end.outcome if end else "missing"
    if view.turn.seq:
        if not node.written:
            return "cut_off"
        waits = view.conversation.waiting_calls or view.children.asks
        return "waiting" if waits else "running"
    return view.turn.outcome or (end.outcome if end else "new")


def agent_of(node: Node) -> str:
    born = node.child.born.agent if node.child else ""
    return born or node.view.conversation.system_prompt.agent or node.view.session.agent


def title_of(node: Node) -> str:
    text = node.child.born.task if node.child else node.view.session.title
    return " ".join(text[:_MAX_TITLE_CHARS].split())


def seconds_of(node: Node, spans: Activity, now: float) -> float:
    """Return the duration of the node's turns. A running turn counts until `now`.

    If the node's process has exited, the unfinished turn counts until the last entry.
    """
    if spans.since is None:
        return spans.seconds
    until = now if node.written else spans.last
    return spans.seconds + max(0.0, until - spans.since)


def current_activity(view: View, spans: Activity, label: Labels) -> str:
    """Return what the running turn does: it waits for a person, runs calls, or calls the model.

    Return "" if it does none of these.
    """
    if waiting := view.conversation.waiting_calls:
        return f"waits for a person: {label(waiting[0].call)}"
    if questions := view.children.asks:
        question = questions[0]
        return f"{question.child} waits for a person: {label(question.call)}"
    calls = (*view.conversation.nested, *view.conversation.calls)
    running = [call for call in calls if call.stage == "started"]
    if running:
        other_count = len(running) - 1
        others = f" and {other_count} more" if other_count else ""
        return f"{label(running[0].call)}{others}"
    open_leaves = [leaf for leaf in spans.leaves if leaf.end is None]
    if open_leaves:
        return f"{len(open_leaves)} model calls by code are running"
    return "the model is called" if view.turn.open_request else ""


def tree_lines(
    root: TreeRow, width: int, *, every_leaf: bool = False, symbols: bool = True
) -> list[Line]:
    """Return the lines of all nodes, and the total. If `symbols` is false, they have only
    ASCII.
    """
    lines = list(
        _node_lines(root, prefix="", indent="", every_leaf=every_leaf, symbols=symbols)
    )
    if root.below:
        sums = [f"{root.sessions} sessions"]
        if leaves := _leaves_text(root.all_leaves):
            sums.append(leaves)
        sums.append(spent_row(root.total))
        lines.append(line(f"in all  {' · '.join(sums)}", "strong"))
    return [cut_line(row, width) for row in lines]


class TotalUsed(Used, frozen=True, kw_only=True):
    """The usage of a node and all nodes below it."""

    leaves: LeafCounts
    sessions: int


class LeafDocument(Used, frozen=True, kw_only=True):
    """A model call that the code of the tool call `call` made, without its answer."""

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
    """A node of the tree.

    `total` includes all nodes below it; only the root has a `type`.
    """

    type: Literal["tree"] | UnsetType = UNSET
    address: str
    session_id: str
    agent: str
    model: str
    status: Status
    title: str
    steps: int
    calls: int  # number of tool calls
    leaves: LeafCounts
    seconds: float
    activity: str
    total: TotalUsed
    damage: str
    leaf_nodes: Sequence[LeafDocument] | UnsetType = UNSET
    children: "Sequence[TreeDocument] | UnsetType" = UNSET


def tree_document(root: TreeRow, *, every_leaf: bool = False) -> TreeDocument:
    """Return the JSON document of `root` and all nodes below it."""
    leaves = [leaf_document(root.node, leaf) for leaf in root.spans.leaves]
    below = [tree_document(row, every_leaf=every_leaf) for row in root.below]
    document = row_document(root)
    return replace(document, leaf_nodes=leaves if every_leaf else UNSET, children=below)


def row_document(row: TreeRow) -> TreeDocument:
    """Return the JSON document of a node, without the nodes below it."""
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
    """Return the JSON document of a leaf."""
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
    """Return `end`, the outcome of a span; "running" or "cut_off" if it is ""."""
    if end:
        return end
    return "running" if node.written and node.view.turn.seq else "cut_off"


def style_of(state: str) -> Style:
    """Return the style of a status or an outcome. The style of any other word is a warning."""
    if state in _GOOD_STATES:
        return "good"
    if state in _UNDER_WAY:
        return "accent"
    return "bad" if state in ("failed", "missing", "cut_off", "unknown") else "warn"


def _node_lines(
    row: TreeRow, prefix: str, indent: str, every_leaf: bool, symbols: bool
) -> Iterator[Line]:
    """Yield the lines of a node and of the nodes below it.

    The first line begins with `prefix`, all others with `indent`: they draw the branches.
    """
    branch, last_branch, bar = ("├─ ", "└─ ", "│  ") if symbols else ("|- ", "`- ", "|  ")
    blank = "   "
    stem = indent + (bar if row.below else blank)
    yield _head(row, prefix)
    yield (("dim", stem), ("dim", _usage_text(row)))
    if row.activity:
        yield (("dim", stem), ("accent", f"now: {escape_to_one_line(row.activity)}"))
    if row.node.damage:
        yield (("dim", stem), ("bad", f"damaged: {escape_to_one_line(row.node.damage)}"))
    if every_leaf:
        for leaf in row.spans.leaves:
            yield (("dim", stem), *_leaf_pieces(row.node, leaf))
    for number, child in enumerate(row.below, start=1):
        is_last = number == len(row.below)
        yield from _node_lines(
            child,
            prefix=indent + (last_branch if is_last else branch),
            indent=indent + (blank if is_last else bar),
            every_leaf=every_leaf,
            symbols=symbols,
        )


def _head(row: TreeRow, prefix: str) -> Line:
    """Return the first line of a node: its name, agent, status and title."""
    name = row.node.name
    if row.node.child is None:
        name = f"{name}  {escape_to_one_line(row.node.session)}"
    head: list[Piece] = [("dim", prefix), ("strong", name)]
    if row.agent:
        head.append(("plain", f"  {escape_to_one_line(row.agent)}"))
    head.append((style_of(row.status), f"  {row.status.replace('_', ' ')}"))
    return (*head, ("plain", f"  {visible(row.title)}"))


def _usage_text(row: TreeRow) -> str:
    """Return the numbers of steps and calls, the usage and the duration of a node."""
    parts = [
        _count_text(len(row.spans.steps), "step"),
        _count_text(len(row.spans.calls), "call"),
    ]
    if leaves := _leaves_text(row.leaves):
        parts.append(leaves)
    parts.append(spent_row(row.node.spent))
    if row.seconds:
        parts.append(duration(row.seconds))
    return " · ".join(parts)


def _leaves_text(leaves: LeafCounts) -> str:
    """Return a text like "leaves 48 done, 2 failed"; "" if there are no leaves."""
    counts = ((leaves.done, "done"), (leaves.failed, "failed"), (leaves.open, "open"))
    text = ", ".join(f"{count} {label}" for count, label in counts if count)
    remembered = f" ({leaves.remembered} remembered)" if leaves.remembered else ""
    return f"leaves {text}{remembered}" if text else ""


def _leaf_pieces(node: Node, leaf: SideCall) -> Iterator[Piece]:
    """Yield the parts of a leaf's row: id, outcome, model, time, prompt and failure."""
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
    """Return the line cut to `width` cells."""
    remaining_width = width
    pieces = list[Piece]()
    for style, text in line:
        part = cut(text, remaining_width)
        remaining_width -= cells(part)
        pieces.append((style, part))
        if part != text:
            break
    return tuple(pieces)
