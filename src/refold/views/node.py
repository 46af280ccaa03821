"""A session of a tree, or a model that was asked beside its talk, whole. Pure.

A call is shown by `call`, a step by `step`.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from refold.journal.tree import Node
from refold.values.usage import Usage
from refold.views.budget import budget_document
from refold.views.counts import dollars, duration, spent_row, tokens
from refold.views.deeds import Aside, fate, spent_by
from refold.views.escape import on_one_line, visible
from refold.views.styled import Line, line
from refold.views.tree import (
    TreeRow,
    leaf_document,
    row_document,
    state,
    style_of,
    tree_lines,
)

_INSIDE = "  "


class LeafShown(Struct, frozen=True):
    """`text` is its whole answer."""

    node: Node
    leaf: Aside
    text: str


def leaf_shown(node: Node, leaf: Aside, blob: Callable[[str], str]) -> LeafShown:
    """`blob` gives the text of a blob, or says why it cannot."""
    end = leaf.end
    text = "" if end is None else blob(end.whole) if end.whole else end.text
    return LeafShown(node, leaf, text)


def node_lines(row: TreeRow, room: int, *, signs: bool = True) -> Iterator[Line]:
    node, view, child = row.node, row.node.view, row.node.child
    model = view.turn.model or view.talk.briefed.model
    about = "".join(f" · {on_one_line(each)}" for each in (row.agent, model) if each)
    yield (
        ("strong", node.address), ("plain", about),
        (style_of(row.status), f" · {row.status.replace('_', ' ')}"),
    )  # fmt: skip
    yield line(f"session {on_one_line(node.session)} in {on_one_line(_where(row))}", "dim")
    if why := _reason(row):
        yield line(on_one_line(why), "warn")
    if row.activity:
        yield line(f"now: {on_one_line(row.activity)}", "accent")
    yield from _part("task", _task(row))
    yield from _part("answer", _answer(row))
    if child and (branch := child.born.branch):
        where = child.born.directory
        yield line("")
        yield line(f"worked on the branch {on_one_line(branch)} in {on_one_line(where)}")
    if node.damage:
        yield line("")
        yield line(f"damaged: {on_one_line(node.damage)}", "bad")
    yield line("")
    yield from tree_lines(row, room, signs=signs)


def node_document(row: TreeRow) -> dict[str, object]:
    view, child = row.node.view, row.node.child
    born, end = (child.born, child.end) if child else (None, None)
    return {
        "type": "node", **row_document(row), "directory": _where(row),
        "task": _task(row), "answer": _answer(row), "reason": _reason(row),
        "result": end.status if end else "",
        "grant": budget_document(child.granted) if child else None,
        "call": born.call_id if born else "", "background": bool(born and born.beside),
        "branch": born.branch if born else "",
        "denials": [
            {"call_id": d.call.id, "tool": d.call.name, "reason": d.reason}
            for d in view.turn.denials
        ],
        "began": view.about.began, "changed": row.did.last,
        "children": [row_document(each) for each in row.below],
    }  # fmt: skip


def leaf_lines(found: LeafShown) -> Iterator[Line]:
    leaf, end = found.leaf, found.leaf.end
    reserved, how = leaf.reserved, state(fate(leaf), found.node)
    model = (end.model if end else "") or reserved.model
    took = "" if leaf.ended is None else f" · {duration(leaf.ended - leaf.at)}"
    yield (
        ("strong", f"{found.node.address}/{leaf.id}"), ("plain", f" · {on_one_line(model)}"),
        (style_of(how), f" · {how.replace('_', ' ')}"), ("dim", took),
    )  # fmt: skip
    if reserved.call_id:
        yield line(f"asked by the code of {on_one_line(reserved.call_id)}", "dim")
    yield line(_used(leaf), "dim")
    if end is not None and end.failed:
        yield line(f"failed: {visible(end.failed)}", "bad")
    yield from _part("query", reserved.words)
    yield from _part("answer", found.text)


def leaf_shown_document(found: LeafShown) -> dict[str, object]:
    end = found.leaf.end
    usage = end.usage if end else None
    return {
        "type": "leaf", **leaf_document(found.node, found.leaf),
        "node": found.node.address, "session_id": found.node.session,
        "input_tokens": usage.input if usage else None,
        "reserved_tokens": found.leaf.reserved.tokens, "answer": found.text,
    }  # fmt: skip


def _used(leaf: Aside) -> str:
    """What it read and said; of one that has not answered, what is set aside for it."""
    end, reserved = leaf.end, leaf.reserved
    if end is not None and end.remembered:
        return "remembered: nobody was asked, and it cost nothing"
    if end is not None and isinstance(end.usage, Usage):
        return spent_row(spent_by(leaf))
    money = "" if reserved.dollars is None else f" · {dollars(reserved.dollars)}"
    what = "set aside" if end is None else "were set aside; not counted"
    return f"{tokens(reserved.tokens)} tokens{money} {what}"


def _part(name: str, text: str) -> Iterator[Line]:
    if text.strip():
        yield line("")
        yield line(name, "heading")
        yield from (line(f"{_INSIDE}{row}") for row in visible(text.rstrip()).split("\n"))


def _where(row: TreeRow) -> str:
    child = row.node.child
    return row.node.view.about.directory or (child.born.directory if child else "")


def _task(row: TreeRow) -> str:
    """Of a child what it was given; of a root what was said last."""
    if row.node.child is not None:
        return row.node.child.born.task
    said = row.node.view.talk.said
    return said[-1].text if said else row.title


def _answer(row: TreeRow) -> str:
    end = row.node.child.end if row.node.child else None
    return row.node.view.turn.answer or (end.text if end else "")


def _reason(row: TreeRow) -> str:
    view, end = row.node.view, row.node.child.end if row.node.child else None
    if view.turn.seq or row.status == "answered":
        return ""
    return view.turn.reason or (end.reason if end else "")
