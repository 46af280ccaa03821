"""All spans of a session tree in the order of time: node, duration, result. Pure.

A span is a model step, a tool call, a leaf or a subagent. `node_detail` shows one in full.
"""

import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.journal.events.kinds import ModelAnswered, ModelFailed
from refold.journal.state.session_tree import Node, walk
from refold.values.usage import Usage
from refold.views.activity import (
    ModelStep,
    SideCall,
    Span,
    SubagentRun,
    ToolStep,
    activity_of,
    side_call_outcome,
    spent_by,
)
from refold.views.escape import escape_to_one_line
from refold.views.number_format import dollars, duration, estimate_sign
from refold.views.session_tree import Labels, cut_line, span_state, style_of
from refold.views.styled import Line
from refold.views.wrap import cells

_MAX_TEXT_CHARS = 500  # characters
_MAX_ADDRESS_CELLS = 28  # cells


class TimelineRow(Struct, frozen=True):
    """A span and its node. `seconds` None: it has no end, and its process has exited."""

    node: str
    address: str
    kind: str  # "model", "tool", "leaf", "summary", "memory", "child"
    name: str  # of the model, the tool, the agent
    words: str
    seq: int
    at: float
    seconds: float | None
    outcome: str
    answers: int  # of models
    usage: Usage
    cost: float | None  # US dollars; null: a price is not known
    within: str = ""  # the call whose code did it


def timeline(root: Node, now: float, label: Labels) -> list[TimelineRow]:
    """The spans of a node and all nodes below it, in the order in which they began."""
    rows = [
        timeline_row(span, node, now, label)
        for node in walk(root)
        for span in activity_of(node.entries).spans
    ]
    return sorted(rows, key=lambda each: each.at)  # at the same moment: parents first


def slowest(rows: Sequence[TimelineRow], count: int) -> list[TimelineRow]:
    timed = [row for row in rows if row.seconds is not None]
    return sorted(timed, key=lambda each: each.seconds or 0.0, reverse=True)[:count]


def timeline_lines(rows: Sequence[TimelineRow], width: int) -> Iterator[Line]:
    column_width = min(
        _MAX_ADDRESS_CELLS, max((cells(row.address) for row in rows), default=0)
    )
    for row in rows:
        yield _line(row, column_width, width)


def outcome_of(span: Span, node: Node) -> str:
    match span:
        case ModelStep(end=end):
            return span_state(_response_outcome(end), node)
        case ToolStep(end=end):
            waits = any(c.call.id == span.id for c in node.view.conversation.waiting_calls)
            open_ = span_state("", node)
            waiting = "waiting" if waits and open_ == "running" else open_
            return end.outcome if end else waiting
        case SideCall():
            return span_state(side_call_outcome(span), node)
        case SubagentRun(end=end):
            return span_state(end.status if end else "", node)


def _response_outcome(end: ModelAnswered | ModelFailed | None) -> str:
    if end is None:
        return ""
    if isinstance(end, ModelFailed):
        return "dropped" if end.dropped else "failed"
    return "stopped" if end.partial else "done"


def began_at(span: Span) -> float:
    """When a span began: a call when it started, not when the model made it."""
    if isinstance(span, ToolStep) and span.started is not None:
        return span.started
    return span.at


def timeline_row(span: Span, node: Node, now: float, label: Labels) -> TimelineRow:
    """The row of a span of this node, whose entries are not read."""
    outcome, began = outcome_of(span, node), began_at(span)
    until = span.ended
    if until is None and outcome != "cut_off":
        until = now
    kind, name, words = _kind_name_and_text(span, label)
    name = name or (node.view.conversation.system_prompt.model if kind == "model" else "")
    within = ""
    match span:
        case ToolStep(made=made) if made:
            within = made.parent_call
        case SideCall(reserved):
            within = reserved.call_id
        case SubagentRun(born):
            within = born.call_id
        case _:
            pass
    spent = spent_by(span)
    return TimelineRow(
        node.address, f"{node.address}/{span.id}", kind, name, words, span.seq, began,
        None if until is None else round(max(0.0, until - began), 3),
        outcome, spent.answers, spent.usage, spent.cost, within,
    )  # fmt: skip


def _kind_name_and_text(span: Span, label: Labels) -> tuple[str, str, str]:
    """The kind of a span, the name of its model, tool or agent, and its text."""
    match span:
        case ModelStep(end=end):
            model = end.model if end else ""
            text = end.message.text if isinstance(end, ModelAnswered) else ""
            why = end.reason if isinstance(end, ModelFailed) else text
            return "model", model, _shorten(why)
        case ToolStep(call):
            return "tool", call.name, _shorten(label(call))
        case SideCall(reserved, end=end):
            model = (end.model if end else "") or reserved.model
            return reserved.purpose, model, _shorten(reserved.prompt)
        case SubagentRun(born):
            return "child", born.agent, _shorten(born.task)


def _shorten(text: str) -> str:
    return " ".join(text[:_MAX_TEXT_CHARS].split())


def _line(row: TimelineRow, column_width: int, width: int) -> Line:
    """Time, duration, address and result; then the text, as far as there is room."""
    when = time.strftime("%H:%M:%S", time.localtime(row.at))
    duration_text = "?" if row.seconds is None else duration(row.seconds)
    # The end of an address identifies the span.
    address = escape_to_one_line(row.address)
    spare = cells(address) - column_width
    if spare > 0:
        address = f"…{address[spare + 1 :]}"
    address += " " * (column_width - cells(address))
    name = f"  {escape_to_one_line(row.name)}" if row.kind != "tool" and row.name else ""
    outcome = row.outcome.replace("_", " ")
    cost = f"  {estimate_sign(row.usage)}{dollars(row.cost)}" if row.cost else ""
    shown: Line = (
        ("dim", f"{when}  {duration_text:>10}  "), ("strong", address),
        (style_of(row.outcome), f"  {outcome}"), ("plain", name), ("dim", cost),
        ("plain", f"  {escape_to_one_line(row.words)}" if row.words else ""),
    )  # fmt: skip
    return cut_line(shown, width)
