"""Lists all spans of a session tree by time: node, duration and outcome of each. Pure.

A span is a model step, a tool call, a side call (such as a summary) or a subagent.
`node_detail` shows one span in full.
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

_MAX_TEXT_CHARS = 500
_MAX_ADDRESS_CELLS = 28


class TimelineRow(Struct, frozen=True):
    """A span and its node.

    `seconds` is None if the span has not ended and its process has exited.
    """

    node: str
    address: str
    kind: str  # "model", "tool", "leaf", "summary", "memory", "child"
    name: str  # of the model, the tool, the agent
    words: str
    seq: int
    at: float
    seconds: float | None
    outcome: str
    answers: int  # number of model responses
    usage: Usage
    cost: float | None  # US dollars; None: a price is not known
    within: str = ""  # the call whose code made the span, or ""


def timeline(root: Node, now: float, label: Labels) -> list[TimelineRow]:
    """Return the spans of a node and of all nodes below it, ordered by the time when they
    began.
    """
    rows = [
        timeline_row(span, node, now, label)
        for node in walk(root)
        for span in activity_of(node.entries).spans
    ]
    # The sort is stable: of spans that began at the same moment, parents come first.
    return sorted(rows, key=lambda row: row.at)


def slowest(rows: Sequence[TimelineRow], count: int) -> list[TimelineRow]:
    """Return the `count` rows with the longest durations, the longest first."""
    timed = [row for row in rows if row.seconds is not None]
    return sorted(timed, key=lambda row: row.seconds or 0.0, reverse=True)[:count]


def timeline_lines(rows: Sequence[TimelineRow], width: int) -> Iterator[Line]:
    """Yield a line for each row. All addresses have the same width."""
    address_width = min(
        _MAX_ADDRESS_CELLS, max((cells(row.address) for row in rows), default=0)
    )
    for row in rows:
        yield _line(row, address_width, width)


def outcome_of(span: Span, node: Node) -> str:
    """Return the outcome of a span; "running", "waiting" or "cut_off" if it has not ended."""
    match span:
        case ModelStep(end=end):
            return span_state(_response_outcome(end), node)
        case ToolStep(end=end):
            state = span_state(end.outcome if end else "", node)
            waiting_ids = [call.call.id for call in node.view.conversation.waiting_calls]
            if state == "running" and span.id in waiting_ids:
                return "waiting"
            return state
        case SideCall():
            return span_state(side_call_outcome(span), node)
        case SubagentRun(end=end):
            return span_state(end.status if end else "", node)


def _response_outcome(end: ModelAnswered | ModelFailed | None) -> str:
    """Return the outcome of a model call; "" if it has not ended."""
    if end is None:
        return ""
    if isinstance(end, ModelFailed):
        return "dropped" if end.dropped else "failed"
    return "stopped" if end.partial else "done"


def began_at(span: Span) -> float:
    """Return the time when a span began.

    A tool call begins when it runs, not when the model requested it.
    """
    if isinstance(span, ToolStep) and span.started is not None:
        return span.started
    return span.at


def timeline_row(span: Span, node: Node, now: float, label: Labels) -> TimelineRow:
    """Return the row of a span of this node, without reading the entries of the node.

    A span that has not ended lasts until `now`. The duration of one that was cut off is None.
    """
    outcome = outcome_of(span, node)
    began = began_at(span)
    end_time = span.ended
    if end_time is None and outcome != "cut_off":
        end_time = now
    seconds = None if end_time is None else round(max(0.0, end_time - began), 3)
    kind, name, words = _kind_name_and_text(span, label)
    if kind == "model" and not name:  # no response has named it yet
        name = node.view.conversation.system_prompt.model
    within = ""  # the id of the call whose code made this one
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
        node=node.address, address=f"{node.address}/{span.id}", kind=kind, name=name,
        words=words, seq=span.seq, at=began, seconds=seconds, outcome=outcome,
        answers=spent.answers, usage=spent.usage, cost=spent.cost, within=within,
    )  # fmt: skip


def _kind_name_and_text(span: Span, label: Labels) -> tuple[str, str, str]:
    """Return the kind of a span, the name of its model, tool or agent, and its text."""
    match span:
        case ModelStep(end=end):
            if end is None:
                return "model", "", ""
            text = end.message.text if isinstance(end, ModelAnswered) else end.reason
            return "model", end.model, _shorten(text)
        case ToolStep(call):
            return "tool", call.name, _shorten(label(call))
        case SideCall(reserved, end=end):
            model = (end.model if end else "") or reserved.model
            return reserved.purpose, model, _shorten(reserved.prompt)
        case SubagentRun(born):
            return "child", born.agent, _shorten(born.task)


def _shorten(text: str) -> str:
    return " ".join(text[:_MAX_TEXT_CHARS].split())


def _line(row: TimelineRow, address_width: int, width: int) -> Line:
    """Return a row as a line: time, duration, address, outcome, and the text cut to `width`."""
    when = time.strftime("%H:%M:%S", time.localtime(row.at))
    duration_text = "?" if row.seconds is None else duration(row.seconds)
    address = escape_to_one_line(row.address)
    excess_cells = cells(address) - address_width
    if excess_cells > 0:  # the end is kept, because it identifies the span
        address = f"…{address[excess_cells + 1 :]}"
    address += " " * (address_width - cells(address))
    name = f"  {escape_to_one_line(row.name)}" if row.kind != "tool" and row.name else ""
    outcome = row.outcome.replace("_", " ")
    cost = f"  {estimate_sign(row.usage)}{dollars(row.cost)}" if row.cost else ""
    shown: Line = (
        ("dim", f"{when}  {duration_text:>10}  "), ("strong", address),
        (style_of(row.outcome), f"  {outcome}"), ("plain", name), ("dim", cost),
        ("plain", f"  {escape_to_one_line(row.words)}" if row.words else ""),
    )  # fmt: skip
    return cut_line(shown, width)
