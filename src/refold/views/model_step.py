"""Shows one step of a session: the request to the model, and the response. Pure.

The parts of the request are computed from the events before it. Its exact bytes are known only
if requests were recorded.
"""

from collections.abc import Callable, Iterator

from msgspec import UNSET, Struct, UnsetType

from refold.errors import BadInput
from refold.journal.events.kinds import ModelAnswered, ModelFailed
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import Node
from refold.journal.store.logged_requests import WireCall
from refold.values.messages import Thinking
from refold.views.activity import ModelStep, activity_of, spent_by
from refold.views.context import ContextUsage, context_document, context_usage
from refold.views.cost import usage_fields
from refold.views.escape import escape_to_one_line, visible
from refold.views.node_detail import CallDetail, call_detail, call_document
from refold.views.number_format import duration, spent_row, tokens
from refold.views.session_tree import Labels, style_of
from refold.views.styled import Line, line
from refold.views.timeline import outcome_of
from refold.views.wrap import fold_lines, text_lines

_BODY_INDENT = "  "
_THOUGHT_MARK = f"{_BODY_INDENT}· "  # before each line of the model's thinking
_MAX_THOUGHT_LINES = 12


class RequestDocument(Struct, frozen=True, kw_only=True):
    """A model call as it was sent. In a list of calls the bodies are left out."""

    number: int  # its number in the session
    seq: int
    at: float
    target: str
    outcome: str
    lost: str  # why a part of it is missing; "" if nothing is
    request: str | UnsetType = UNSET
    response: str | UnsetType = UNSET


def request_document(
    number: int, call: WireCall, *, bodies: bool = True
) -> RequestDocument:
    """Return a recorded request as a document. Without `bodies`, it has no request and
    response.
    """
    return RequestDocument(
        number=number, seq=call.seq, at=call.at, target=call.to, outcome=call.came_to,
        lost=call.lost,
        request=call.request.decode(errors="replace") if bodies else UNSET,
        response=call.answer.decode(errors="replace") if bodies else UNSET,
    )  # fmt: skip


class StepDetail(Struct, frozen=True):
    node: Node
    step: ModelStep
    count: int  # of steps in the session
    sent: ContextUsage
    calls: tuple[CallDetail, ...]


def step_detail(node: Node, number: int, blob: Callable[[str], str]) -> StepDetail:
    """Return the step with this number, counted from 1, or from the end with -1 as the last.

    `blob` returns the text of a blob, for results that were cut. Raise BadInput if there is no
    such step.
    """
    activity = activity_of(node.entries)
    steps = activity.steps
    index = number - 1 if number > 0 else len(steps) + number
    if not 0 <= index < len(steps):
        range_text = f"they are 1 to {len(steps)}" if steps else "it has none yet"
        raise BadInput(f"{node.address} has no step {number}: {range_text}")
    step = steps[index]
    view = fold(entry for entry in node.entries if entry.seq <= step.seq)
    # Calls that code made are not calls of the model.
    own_calls = [
        tool_step
        for tool_step in activity.calls
        if tool_step.step == step.number and not tool_step.made
    ]
    details = tuple(call_detail(node, tool_step, blob) for tool_step in own_calls)
    return StepDetail(node, step, len(steps), context_usage(view), details)


def step_lines(detail: StepDetail, width: int, label: Labels) -> Iterator[Line]:
    """Yield the lines of a step: the request, and then the response with its calls."""
    step, node = detail.step, detail.node
    outcome = outcome_of(step, node)
    title = f"{node.address} · step {step.number} of {detail.count}"
    duration_text = "" if step.ended is None else f" · {duration(step.ended - step.at)}"
    duration_text += _first_piece_text(step)
    yield (
        ("strong", title),
        (style_of(outcome), f" · {outcome.replace('_', ' ')}"),
        ("dim", duration_text),
    )
    yield line("")
    yield from _request_lines(detail)
    for note in step.asked.notes:
        yield line("")
        yield line("note", "heading")
        yield from _text_lines(note)
    yield line("")
    yield from _response_lines(step, width)
    for call in detail.calls:
        yield line("")
        yield from _call_rows(call, width, label)
    if step.traced:
        numbers = ", ".join(map(str, step.traced))
        command = f"refold sessions requests {node.session} {step.traced[-1]}"
        yield line("")
        yield line(f"saved as sent: {numbers} ({escape_to_one_line(command)})", "dim")


def _first_piece_text(step: ModelStep) -> str:
    first = step.end.first_piece if isinstance(step.end, ModelAnswered) else None
    return "" if first is None else f" · first piece after {duration(first)}"


def step_document(detail: StepDetail) -> dict[str, object]:
    """Return a model step as a JSON document. "seconds" is None until the step ends."""
    step = detail.step
    return {
        "type": "step", "address": f"{detail.node.address}/{step.id}",
        "node": detail.node.address, "session_id": detail.node.session,
        "step": step.number, "steps": detail.count, "turn": step.turn, "seq": step.seq,
        "at": step.at,
        "seconds": None if step.ended is None else round(step.ended - step.at, 3),
        "outcome": outcome_of(step, detail.node), "notes": list(step.asked.notes),
        "because": list(step.asked.policies), "tools": step.asked.tools,
        "request": context_document(detail.sent), "answer": _answer(step),
        "calls": [call_document(call) for call in detail.calls],
        "traced": list(step.traced), **usage_fields(spent_by(step)),
    }  # fmt: skip


def _request_lines(detail: StepDetail) -> Iterator[Line]:
    """Yield lines about the request: its model, its size, and the size of each part."""
    request = detail.sent
    model = escape_to_one_line(request.model) or "no model"
    tool_note = "" if detail.step.asked.tools else ", and may call no tools"
    yield line(
        f"sent to {model}: about {tokens(request.used_tokens)} tokens{tool_note}", "heading"
    )
    for portion in (*request.prompt, *request.conversation):
        name = escape_to_one_line(portion.name)
        size = f"{tokens(portion.tokens):>8}  {portion.characters:>9,} characters"
        yield line(f"{_BODY_INDENT}{name:<14}{size}")


def _response_lines(step: ModelStep, width: int) -> Iterator[Line]:
    """Yield lines about the response, about its failure, or that there is none yet."""
    spent = spent_by(step)
    used = f" · {spent_row(spent)}" if spent.answers else ""
    match step.end:
        case None:
            yield line("no answer yet", "warn")
        case ModelFailed(reason, kind, partial_text, dropped=dropped):
            yield line(f"{'dropped' if dropped else 'no answer'}{used}", "heading")
            yield from _text_lines(f"{kind}: {reason}" if kind else reason)
            if partial_text:
                yield from _text_lines(partial_text)
        case ModelAnswered(message, stop=stop, model=model):
            yield line(
                f"{escape_to_one_line(model) or 'the model'} answered{used}", "heading"
            )
            for part in message.parts:
                if isinstance(part, Thinking) and part.text.strip():
                    rows = text_lines(part.text, width - len(_THOUGHT_MARK), "dim")
                    for row in fold_lines(rows, _MAX_THOUGHT_LINES):
                        yield (("dim", _THOUGHT_MARK), *row)
            if message.text.strip():
                yield from _text_lines(message.text)
            if stop in ("length", "refused"):
                yield line(f"{_BODY_INDENT}(stopped: {stop})", "warn")


def _call_rows(detail: CallDetail, width: int, label: Labels) -> Iterator[Line]:
    """Yield the rows of a call of the step: its label and outcome, and its folded result."""
    outcome = detail.outcome
    yield (
        ("strong", detail.made.id), ("plain", f"  {label(detail.made.call)}"),
        (style_of(outcome), f"  {outcome.replace('_', ' ')}"),
    )  # fmt: skip
    if detail.made.end is not None:
        rows = text_lines(detail.made.end.text, width - len(_BODY_INDENT), "dim")
        for row in fold_lines(rows):
            yield (("plain", _BODY_INDENT), *row)


def _text_lines(text: str) -> Iterator[Line]:
    """Yield the lines of a text, without cutting any."""
    for row in visible(text).split("\n"):
        yield line(f"{_BODY_INDENT}{row}")


def _answer(step: ModelStep) -> dict[str, object] | None:
    """Return the response as a JSON document; None if there is none yet."""
    match step.end:
        case None:
            return None
        case ModelFailed(reason, kind, text, model=model, dropped=dropped):
            return {
                "text": text, "model": model, "failed": reason, "kind": kind,
                "dropped": dropped,
            }  # fmt: skip
        case ModelAnswered(message) as end:
            thought = "".join(
                part.text for part in message.parts if isinstance(part, Thinking)
            )
            return {
                "text": message.text, "thinking": thought, "model": end.model,
                "served": end.served_by, "stop": end.stop, "partial": end.partial,
                "first_piece": end.first_piece,
                "calls": [call.id for call in message.calls],
                "usage": end.usage, "failed": "",
            }  # fmt: skip
