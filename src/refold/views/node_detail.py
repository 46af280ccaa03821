"""Shows in full a session of the tree, a tool call, or a model call that code made. Pure.

`model_step` shows a step of the model.
"""

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from refold.journal.events.kinds import Ended, Settled
from refold.journal.state.session_tree import Node
from refold.values.usage import Usage
from refold.views.activity import SideCall, ToolStep, side_call_outcome, spent_by
from refold.views.call_summary import arguments as call_arguments
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import dollars, duration, spent_row, tokens
from refold.views.session_tree import (
    TreeRow,
    leaf_document,
    row_document,
    span_state,
    style_of,
    tree_lines,
)
from refold.views.styled import Line, line
from refold.views.timeline import outcome_of

_BODY_INDENT = "  "


class LeafDetail(Struct, frozen=True):
    """A leaf (a model call that code made) in full. `text` is the complete answer."""

    node: Node
    leaf: SideCall
    text: str


def leaf_detail(node: Node, leaf: SideCall, blob: Callable[[str], str]) -> LeafDetail:
    """Return a leaf in full. `blob` returns the text of a blob, or why it cannot be read."""
    return LeafDetail(node, leaf, _whole_text(leaf.end, blob))


def _whole_text(end: Settled | Ended | None, blob: Callable[[str], str]) -> str:
    """Return the complete answer or result; "" if the call has not ended."""
    if end is None:
        return ""
    return blob(end.full_blob) if end.full_blob else end.text


def node_lines(row: TreeRow, width: int, *, symbols: bool = True) -> Iterator[Line]:
    """Yield the lines of a session: its state, its task, its answer, and the tree below it."""
    node, view, child = row.node, row.node.view, row.node.child
    model = view.turn.model or view.conversation.system_prompt.model
    about = "".join(f" · {escape_to_one_line(part)}" for part in (row.agent, model) if part)
    yield (
        ("strong", node.address), ("plain", about),
        (style_of(row.status), f" · {row.status.replace('_', ' ')}"),
    )  # fmt: skip
    yield line(
        f"session {escape_to_one_line(node.session)} in {escape_to_one_line(_directory_of(row))}",
        "dim",
    )
    if why := _reason(row):
        yield line(escape_to_one_line(why), "warn")
    if row.activity:
        yield line(f"now: {escape_to_one_line(row.activity)}", "accent")
    yield from _part_rows("task", _task(row))
    yield from _part_rows("answer", _answer(row))
    if child and (branch := child.born.branch):
        directory = child.born.directory
        yield line("")
        yield line(
            f"worked on the branch {escape_to_one_line(branch)} in {escape_to_one_line(directory)}"
        )
    if node.damage:
        yield line("")
        yield line(f"damaged: {escape_to_one_line(node.damage)}", "bad")
    yield line("")
    yield from tree_lines(row, width, symbols=symbols)


def node_document(row: TreeRow) -> dict[str, object]:
    """Return a node as a JSON document. Fields about its parent are empty in the root."""
    view, child = row.node.view, row.node.child
    born, end = (child.born, child.end) if child else (None, None)
    return {
        "type": "node", **msgspec.to_builtins(row_document(row)), "directory": _directory_of(row),
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
        "children": [row_document(child_row) for child_row in row.below],
    }  # fmt: skip


def leaf_lines(detail: LeafDetail) -> Iterator[Line]:
    """Yield the lines of a leaf: its state, its usage, its query and its answer."""
    leaf = detail.leaf
    reserved, end = leaf.reserved, leaf.end
    outcome = span_state(side_call_outcome(leaf), detail.node)
    model = (end.model if end else "") or reserved.model
    duration_text = "" if leaf.ended is None else f" · {duration(leaf.ended - leaf.at)}"
    yield (
        ("strong", f"{detail.node.address}/{leaf.id}"), ("plain", f" · {escape_to_one_line(model)}"),
        (style_of(outcome), f" · {outcome.replace('_', ' ')}"), ("dim", duration_text),
    )  # fmt: skip
    if reserved.call_id:
        yield line(f"asked by the code of {escape_to_one_line(reserved.call_id)}", "dim")
    yield line(_usage_text(leaf), "dim")
    if end is not None and end.failed:
        yield line(f"failed: {visible(end.failed)}", "bad")
    yield from _part_rows("query", reserved.prompt)
    yield from _part_rows("answer", detail.text)


def leaf_detail_document(detail: LeafDetail) -> dict[str, object]:
    """Return a leaf as a JSON document. Its input tokens are None if no usage is known."""
    end = detail.leaf.end
    usage = end.usage if end else None
    return {
        "type": "leaf", **msgspec.to_builtins(leaf_document(detail.node, detail.leaf)),
        "node": detail.node.address, "session_id": detail.node.session,
        "input_tokens": usage.input if usage else None,
        "reserved_tokens": detail.leaf.reserved.tokens, "answer": detail.text,
    }  # fmt: skip


def _usage_text(leaf: SideCall) -> str:
    """Return the usage of a leaf. If it is unknown, return the amount that was reserved for it."""
    end, reserved = leaf.end, leaf.reserved
    if end is not None and end.cached:
        return "from the cache: no model was called, and it cost nothing"
    if end is not None and isinstance(end.usage, Usage):
        return spent_row(spent_by(leaf))
    money = "" if reserved.dollars is None else f" · {dollars(reserved.dollars)}"
    note = "reserved" if end is None else "reserved; not counted"
    return f"{tokens(reserved.tokens)} tokens{money} {note}"


def _part_rows(name: str, text: str) -> Iterator[Line]:
    """Yield a heading and a text below it, or nothing if the text is blank."""
    if text.strip():
        yield line("")
        yield line(name, "heading")
        yield from (
            line(f"{_BODY_INDENT}{row}") for row in visible(text.rstrip()).split("\n")
        )


def _directory_of(row: TreeRow) -> str:
    child = row.node.child
    return row.node.view.session.directory or (child.born.directory if child else "")


def _task(row: TreeRow) -> str:
    """Return the task of a subagent, or the newest message of the root session."""
    if row.node.child is not None:
        return row.node.child.born.task
    messages = row.node.view.conversation.user_messages
    return messages[-1].text if messages else row.title


def _answer(row: TreeRow) -> str:
    end = row.node.child.end if row.node.child else None
    return row.node.view.turn.answer or (end.text if end else "")


def _reason(row: TreeRow) -> str:
    """Return why the last turn ended; "" if it was answered, or if a turn is running."""
    view = row.node.view
    if view.turn.seq or row.status == "answered":
        return ""
    end = row.node.child.end if row.node.child else None
    return view.turn.reason or (end.reason if end else "")


class CallDetail(Struct, frozen=True):
    """A tool call in full. `text` is the complete result; the model may have seen only a part."""

    node: Node
    made: ToolStep
    outcome: str
    text: str = ""

    @property
    def seconds(self) -> float | None:
        """The duration of the call, without the time in which it waited for the user.

        It is None if the call has not ended.
        """
        step = self.made
        if step.ended is None:
            return None
        start_time = step.at if step.started is None else step.started
        return step.ended - start_time


def call_detail(node: Node, step: ToolStep, blob: Callable[[str], str]) -> CallDetail:
    """Return a call in full. `blob` returns the text of a blob, or why it cannot be read."""
    return CallDetail(node, step, outcome_of(step, node), _whole_text(step.end, blob))


def call_lines(detail: CallDetail) -> Iterator[Line]:
    """Yield the lines of a call: its state, its arguments, the decision about it, and its
    result.
    """
    step, call = detail.made, detail.made.call
    outcome, seconds = detail.outcome, detail.seconds
    duration_text = "" if seconds is None else f" · {duration(seconds)}"
    yield (
        ("strong", f"{detail.node.address}/{step.id}"),
        ("plain", f" · {escape_to_one_line(call.name)}"),
        (style_of(outcome), f" · {outcome.replace('_', ' ')}"), ("dim", duration_text),
    )  # fmt: skip
    yield line(f"called by {escape_to_one_line(_caller(step))}", "dim")
    yield line("")
    yield from _argument_lines(detail)
    yield line("")
    yield from _verdict_lines(step)
    if step.end is not None:
        yield line("")
        yield line("result", "heading")
        yield from (line(f"  {row}") for row in visible(detail.text).split("\n"))


def call_document(detail: CallDetail) -> dict[str, object]:
    """Return a call as a JSON document. Fields about events still to come are empty."""
    step = detail.made
    judged, end = step.judged, step.end
    return {
        "type": "call", "address": f"{detail.node.address}/{step.id}",
        "node": detail.node.address, "session_id": detail.node.session,
        "call_id": step.id, "tool": step.call.name, "arguments": step.call.plain_arguments,
        "step": step.step, "within": step.made.parent_call if step.made else "",
        "seq": step.seq, "at": step.at, "started": step.started,
        "seconds": None if detail.seconds is None else round(detail.seconds, 3),
        "verdict": judged.verdict if judged else "", "rule": judged.rule if judged else "",
        "source": judged.source if judged else "",
        "reason": judged.reason if judged else "",
        "answered": step.answered, "answered_by": step.answered_by,
        "outcome": detail.outcome,
        "text": end.text if end else "",
        # None: the model saw the whole text.
        "whole": detail.text if end and end.full_blob else None,
        "shown": end.shown if end else [],
    }  # fmt: skip


def _argument_lines(detail: CallDetail) -> Iterator[Line]:
    """Yield the arguments of a call by name, or the raw text if it contains none."""
    call = detail.made.call
    yield line("arguments", "heading")
    arguments = call_arguments(call)
    if not arguments:
        yield line(
            f"  {escape_to_one_line(bytes(call.arguments).decode(errors='replace'))}"
        )
    for name, value in arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        rows = visible(text).split("\n")
        yield line(f"  {escape_to_one_line(name)}: {rows[0]}")
        yield from (line(f"    {row}") for row in rows[1:])


def _caller(step: ToolStep) -> str:
    """Return a text that says who made the call: the model, code, or refold."""
    if step.made is None:
        return f"the model, step {step.step}"
    if step.made.parent_call:
        return f"the code of {step.made.parent_call}"
    caller = "the provider" if step.judged is None else "refold"
    return f"{caller}, in step {step.step}"


def _verdict_lines(step: ToolStep) -> Iterator[Line]:
    """Yield what the rules decided about the call, and what a person answered."""
    judged, answered = step.judged, step.answered
    if judged is None:
        has_ended = step.end is not None  # the provider ran the call
        text = "not judged: it had happened already" if has_ended else "not judged yet"
        yield line(text, "dim")
        return
    rule = f" by {judged.rule}" if judged.rule else ""
    source = f" ({judged.source})" if judged.source else ""
    why = f": {judged.reason}" if judged.reason else ""
    yield line(escape_to_one_line(f"verdict {judged.verdict}{rule}{source}{why}"))
    if answered is not None:
        answer = "yes" if answered.allowed else "no"
        words = " / ".join((answered.reason, *answered.answers)).strip(" /")
        detail = f": {words}" if words else ""
        decider = step.answered_by or "a person"
        yield line(escape_to_one_line(f"{decider} said {answer}{detail}"))
