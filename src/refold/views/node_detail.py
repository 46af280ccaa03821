"""One node of the session tree in full: a session, a tool call, or a model call made by code. Pure.

`model_step` shows a step of the model.
"""

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from refold.journal.state.session_tree import Node
from refold.values.usage import Usage
from refold.views.activity import SideCall, ToolStep, side_call_outcome, spent_by
from refold.views.call_summary import arguments as object_in
from refold.views.escape import on_one_line, visible
from refold.views.number_format import dollars, duration, spent_row, tokens
from refold.views.session_tree import (
    TreeRow,
    leaf_document,
    row_document,
    state,
    style_of,
    tree_lines,
)
from refold.views.styled import Line, line
from refold.views.timeline import outcome_of

_INSIDE = "  "


class LeafDetail(Struct, frozen=True):
    """`text` is the whole answer."""

    node: Node
    leaf: SideCall
    text: str


def leaf_shown(node: Node, leaf: SideCall, blob: Callable[[str], str]) -> LeafDetail:
    """`blob` returns the text of a blob, or an explanation if it cannot be read."""
    end = leaf.end
    text = "" if end is None else blob(end.full_blob) if end.full_blob else end.text
    return LeafDetail(node, leaf, text)


def node_lines(row: TreeRow, room: int, *, signs: bool = True) -> Iterator[Line]:
    node, view, child = row.node, row.node.view, row.node.child
    model = view.turn.model or view.conversation.system_prompt.model
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
        "type": "node", **msgspec.to_builtins(row_document(row)), "directory": _where(row),
        "task": _task(row), "answer": _answer(row), "reason": _reason(row),
        "result": end.status if end else "",
        "grant": child.granted if child else None,
        "call": born.call_id if born else "", "background": bool(born and born.background),
        "branch": born.branch if born else "",
        "denials": [
            {"call_id": d.call.id, "tool": d.call.name, "reason": d.reason}
            for d in view.turn.denials
        ],
        "began": view.session.started_at, "changed": row.spans.last,
        "children": [row_document(each) for each in row.below],
    }  # fmt: skip


def leaf_lines(found: LeafDetail) -> Iterator[Line]:
    leaf, end = found.leaf, found.leaf.end
    reserved, how = leaf.reserved, state(side_call_outcome(leaf), found.node)
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
    yield from _part("query", reserved.prompt)
    yield from _part("answer", found.text)


def leaf_shown_document(found: LeafDetail) -> dict[str, object]:
    end = found.leaf.end
    usage = end.usage if end else None
    return {
        "type": "leaf", **msgspec.to_builtins(leaf_document(found.node, found.leaf)),
        "node": found.node.address, "session_id": found.node.session,
        "input_tokens": usage.input if usage else None,
        "reserved_tokens": found.leaf.reserved.tokens, "answer": found.text,
    }  # fmt: skip


def _used(leaf: SideCall) -> str:
    """Usage of a leaf; before its answer, what is reserved for it."""
    end, reserved = leaf.end, leaf.reserved
    if end is not None and end.cached:
        return "from the cache: no model was called, and it cost nothing"
    if end is not None and isinstance(end.usage, Usage):
        return spent_row(spent_by(leaf))
    money = "" if reserved.dollars is None else f" · {dollars(reserved.dollars)}"
    what = "reserved" if end is None else "reserved; not counted"
    return f"{tokens(reserved.tokens)} tokens{money} {what}"


def _part(name: str, text: str) -> Iterator[Line]:
    if text.strip():
        yield line("")
        yield line(name, "heading")
        yield from (line(f"{_INSIDE}{row}") for row in visible(text.rstrip()).split("\n"))


def _where(row: TreeRow) -> str:
    child = row.node.child
    return row.node.view.session.directory or (child.born.directory if child else "")


def _task(row: TreeRow) -> str:
    """The task of a subagent; of the root, its newest message."""
    if row.node.child is not None:
        return row.node.child.born.task
    said = row.node.view.conversation.user_messages
    return said[-1].text if said else row.title


def _answer(row: TreeRow) -> str:
    end = row.node.child.end if row.node.child else None
    return row.node.view.turn.answer or (end.text if end else "")


def _reason(row: TreeRow) -> str:
    view, end = row.node.view, row.node.child.end if row.node.child else None
    if view.turn.seq or row.status == "answered":
        return ""
    return view.turn.reason or (end.reason if end else "")


class CallDetail(Struct, frozen=True):
    """`text` is the whole result, also the part that the model did not see."""

    node: Node
    made: ToolStep
    outcome: str
    text: str = ""

    @property
    def seconds(self) -> float | None:
        """Without the time in which it waited for the user."""
        made = self.made
        if made.ended is None:
            return None
        return made.ended - (made.at if made.started is None else made.started)


def call_shown(node: Node, made: ToolStep, blob: Callable[[str], str]) -> CallDetail:
    """`blob` returns the text of a blob, or an explanation if it cannot be read."""
    end = made.end
    text = "" if end is None else blob(end.full_blob) if end.full_blob else end.text
    return CallDetail(node, made, outcome_of(made, node), text)


def call_lines(found: CallDetail) -> Iterator[Line]:
    made, call = found.made, found.made.call
    how, seconds = found.outcome, found.seconds
    took = "" if seconds is None else f" · {duration(seconds)}"
    yield (
        ("strong", f"{found.node.address}/{made.id}"),
        ("plain", f" · {on_one_line(call.name)}"),
        (style_of(how), f" · {how.replace('_', ' ')}"), ("dim", took),
    )  # fmt: skip
    yield line(f"called by {on_one_line(_caller(made))}", "dim")
    yield line("")
    yield from _arguments(found)
    yield line("")
    yield from _verdict(made)
    if made.end is not None:
        yield line("")
        yield line("result", "heading")
        yield from (line(f"  {row}") for row in visible(found.text).split("\n"))


def call_document(found: CallDetail) -> dict[str, object]:
    made, judged, answered, end = (
        found.made, found.made.judged, found.made.answered, found.made.end,
    )  # fmt: skip
    return {
        "type": "call", "address": f"{found.node.address}/{made.id}",
        "node": found.node.address, "session_id": found.node.session,
        "call_id": made.id, "tool": made.call.name, "arguments": made.call.plain_arguments,
        "step": made.step, "within": made.made.parent_call if made.made else "",
        "seq": made.seq, "at": made.at, "started": made.started,
        "seconds": None if found.seconds is None else round(found.seconds, 3),
        "verdict": judged.verdict if judged else "", "rule": judged.rule if judged else "",
        "source": judged.source if judged else "",
        "reason": judged.reason if judged else "",
        "answered": answered,
        "outcome": found.outcome,
        "text": end.text if end else "",
        "whole": found.text if end and end.full_blob else None,  # None: the model saw all
        "shown": end.shown if end else [],
    }  # fmt: skip


def _arguments(found: CallDetail) -> Iterator[Line]:
    call = found.made.call
    yield line("arguments", "heading")
    given = object_in(call)
    if not given:
        yield line(f"  {on_one_line(bytes(call.arguments).decode(errors='replace'))}")
    for name, value in given.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        rows = visible(text).split("\n")
        yield line(f"  {on_one_line(name)}: {rows[0]}")
        yield from (line(f"    {row}") for row in rows[1:])


def _caller(made: ToolStep) -> str:
    if made.made is None:
        return f"the model, step {made.step}"
    if made.made.parent_call:
        return f"the code of {made.made.parent_call}"
    who = "the provider" if made.judged is None else "refold"
    return f"{who}, in step {made.step}"


def _verdict(made: ToolStep) -> Iterator[Line]:
    judged, answered = made.judged, made.answered
    if judged is None:
        ended = made.end is not None
        yield line(
            "not judged: it had happened already" if ended else "not judged yet", "dim"
        )
        return
    rule = f" by {judged.rule}" if judged.rule else ""
    source = f" ({judged.source})" if judged.source else ""
    why = f": {judged.reason}" if judged.reason else ""
    yield line(on_one_line(f"verdict {judged.verdict}{rule}{source}{why}"))
    if answered is not None:
        said = "yes" if answered.allowed else "no"
        more = " / ".join((answered.reason, *answered.answers)).strip(" /")
        yield line(on_one_line(f"a person said {said}{f': {more}' if more else ''}"))
