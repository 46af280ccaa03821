"""One step of a session: the request to the model, and its response. Pure.

The parts of the request are folded from the entries before it; its exact bytes exist only if
requests are logged.
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
from refold.views.cost import used_fields
from refold.views.escape import on_one_line, visible
from refold.views.node_detail import CallDetail, call_document, call_shown
from refold.views.number_format import duration, spent_row, tokens
from refold.views.session_tree import Labels, style_of
from refold.views.styled import Line, line
from refold.views.timeline import outcome_of
from refold.views.wrap import folded, text_lines

_INSIDE = "  "


class RequestDocument(Struct, frozen=True, kw_only=True):
    """A model call as it was sent, with its bodies unless it is in a list of them."""

    number: int  # in its session
    seq: int
    at: float
    target: str
    outcome: str
    lost: str  # why a part of it is missing
    request: str | UnsetType = UNSET
    response: str | UnsetType = UNSET


def request_document(
    number: int, call: WireCall, *, bodies: bool = True
) -> RequestDocument:
    return RequestDocument(
        number=number, seq=call.seq, at=call.at, target=call.to, outcome=call.came_to,
        lost=call.lost,
        request=call.request.decode(errors="replace") if bodies else UNSET,
        response=call.answer.decode(errors="replace") if bodies else UNSET,
    )  # fmt: skip


class StepDetail(Struct, frozen=True):
    node: Node
    step: ModelStep
    count: int  # of steps in its session
    sent: ContextUsage
    calls: tuple[CallDetail, ...]


def step_shown(node: Node, number: int, blob: Callable[[str], str]) -> StepDetail:
    """The step of this number; -1 is the last. `blob` returns the cut part of a result."""
    found = activity_of(node.entries)
    steps = found.steps
    at = number - 1 if number > 0 else number + len(steps)
    if not 0 <= at < len(steps):
        there = f"they are 1 to {len(steps)}" if steps else "it has none yet"
        raise BadInput(f"{node.address} has no step {number}: {there}")
    step = steps[at]
    before = fold(each for each in node.entries if each.seq <= step.seq)
    own = [each for each in found.calls if each.step == step.number and not each.made]
    shown = tuple(call_shown(node, each, blob) for each in own)
    return StepDetail(node, step, len(steps), context_usage(before), shown)


def step_lines(found: StepDetail, room: int, label: Labels) -> Iterator[Line]:
    step, node = found.step, found.node
    how = outcome_of(step, node)
    of = f"{node.address} · step {step.number} of {found.count}"
    took = "" if step.ended is None else f" · {duration(step.ended - step.at)}"
    took += _began(step)
    yield (("strong", of), (style_of(how), f" · {how.replace('_', ' ')}"), ("dim", took))
    yield line("")
    yield from _sent(found)
    for note in step.asked.notes:
        yield line("")
        yield line("note", "heading")
        yield from _text(note)
    yield line("")
    yield from _said(step, room)
    for call in found.calls:
        yield line("")
        yield from _call(call, room, label)
    if step.traced:
        numbers = ", ".join(map(str, step.traced))
        command = f"refold sessions requests {node.session} {step.traced[-1]}"
        yield line("")
        yield line(f"saved as sent: {numbers} ({on_one_line(command)})", "dim")


def _began(step: ModelStep) -> str:
    first = step.end.first_piece if isinstance(step.end, ModelAnswered) else None
    return "" if first is None else f" · first piece after {duration(first)}"


def step_document(found: StepDetail) -> dict[str, object]:
    step = found.step
    return {
        "type": "step", "address": f"{found.node.address}/{step.id}",
        "node": found.node.address, "session_id": found.node.session,
        "step": step.number, "steps": found.count, "turn": step.turn, "seq": step.seq,
        "at": step.at,
        "seconds": None if step.ended is None else round(step.ended - step.at, 3),
        "outcome": outcome_of(step, found.node), "notes": list(step.asked.notes),
        "because": list(step.asked.policies), "tools": step.asked.tools,
        "request": context_document(found.sent), "answer": _answer(step),
        "calls": [call_document(each) for each in found.calls],
        "traced": list(step.traced), **used_fields(spent_by(step)),
    }  # fmt: skip


def _sent(found: StepDetail) -> Iterator[Line]:
    sent = found.sent
    model = on_one_line(sent.model) or "no model"
    asked = "" if found.step.asked.tools else ", and may call no tools"
    yield line(f"sent to {model}: about {tokens(sent.used)} tokens{asked}", "heading")
    for portion in (*sent.prompt, *sent.conversation):
        name = on_one_line(portion.name)
        size = f"{tokens(portion.tokens):>8}  {portion.characters:>9,} characters"
        yield line(f"{_INSIDE}{name:<14}{size}")


def _said(step: ModelStep, room: int) -> Iterator[Line]:
    spent = spent_by(step)
    used = f" · {spent_row(spent)}" if spent.answers else ""
    match step.end:
        case None:
            yield line("no answer yet", "warn")
        case ModelFailed(reason, kind, shown):
            dropped = step.end.dropped
            yield line(f"{'dropped' if dropped else 'no answer'}{used}", "heading")
            yield from _text(f"{kind}: {reason}" if kind else reason)
            if shown:
                yield from _text(shown)
        case ModelAnswered(message, stop=stop, model=model):
            yield line(f"{on_one_line(model) or 'the model'} answered{used}", "heading")
            for part in message.parts:
                if isinstance(part, Thinking) and part.text.strip():
                    for row in folded(text_lines(part.text, room - 4, "dim"), 12):
                        yield (("dim", f"{_INSIDE}· "), *row)
            if message.text.strip():
                yield from _text(message.text)
            if stop in ("length", "refused"):
                yield line(f"{_INSIDE}(stopped: {stop})", "warn")


def _call(found: CallDetail, room: int, label: Labels) -> Iterator[Line]:
    how = found.outcome
    yield (
        ("strong", found.made.id), ("plain", f"  {label(found.made.call)}"),
        (style_of(how), f"  {how.replace('_', ' ')}"),
    )  # fmt: skip
    if found.made.end is not None:
        rows = text_lines(found.made.end.text, room - len(_INSIDE), "dim")
        for row in folded(rows):
            yield (("plain", _INSIDE), *row)


def _text(text: str) -> Iterator[Line]:
    """The whole text: nothing is cut here."""
    for row in visible(text).split("\n"):
        yield line(f"{_INSIDE}{row}")


def _answer(step: ModelStep) -> dict[str, object] | None:
    match step.end:
        case None:
            return None
        case ModelFailed(reason, kind, shown, model=model):
            dropped = step.end.dropped
            return {
                "text": shown, "model": model, "failed": reason, "kind": kind,
                "dropped": dropped,
            }  # fmt: skip
        case ModelAnswered(message) as end:
            thought = "".join(p.text for p in message.parts if isinstance(p, Thinking))
            return {
                "text": message.text, "thinking": thought, "model": end.model,
                "served": end.served_by, "stop": end.stop, "partial": end.partial,
                "first_piece": end.first_piece,
                "calls": [call.id for call in message.calls],
                "usage": end.usage, "failed": "",
            }  # fmt: skip
