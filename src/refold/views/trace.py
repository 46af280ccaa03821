"""Everything a tree of sessions did, in the order of its time: who, how long, what of it. Pure.

Asking a model is a deed as much as calling a tool, asking a leaf or having a child. What
is inside one of them is `node`'s business.
"""

import time
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from refold.journal.events import ModelAnswered, ModelFailed
from refold.journal.tree import Node, walk
from refold.values.usage import Spent
from refold.views.cells import cells
from refold.views.counts import about, dollars, duration
from refold.views.deeds import (
    Aside,
    Birth,
    Deed,
    ModelStep,
    ToolStep,
    deeds,
    fate,
    spent_by,
)
from refold.views.escape import on_one_line
from refold.views.styled import Line
from refold.views.tree import Labels, fit, state, style_of

_WORDS = 500  # characters
_ADDRESS = 28  # cells


class Traced(Struct, frozen=True):
    """A deed at its place. `seconds` None: it has no end, and its process is gone."""

    node: str
    kind: str  # "model", "tool", "leaf", "summary", "memory", "child"
    id: str  # below the node
    name: str  # of the model, the tool, the agent
    words: str
    seq: int
    at: float
    seconds: float | None
    outcome: str
    spent: Spent
    within: str = ""  # the call whose code did it

    @property
    def address(self) -> str:
        return f"{self.node}/{self.id}"


def trace(root: Node, now: float, label: Labels) -> list[Traced]:
    """The deeds of a node and all below it, in the order in which they began."""
    found = [
        _traced(deed, node, now, label)
        for node in walk(root)
        for deed in deeds(node.entries).every
    ]
    return sorted(found, key=lambda each: each.at)  # at the same moment: parents first


def slowest(found: Sequence[Traced], count: int) -> list[Traced]:
    timed = [each for each in found if each.seconds is not None]
    return sorted(timed, key=lambda each: each.seconds or 0.0, reverse=True)[:count]


def trace_lines(found: Sequence[Traced], room: int) -> Iterator[Line]:
    wide = min(_ADDRESS, max((cells(each.address) for each in found), default=0))
    for each in found:
        yield _line(each, wide, room)


def trace_document(found: Traced) -> dict[str, object]:
    return {
        "node": found.node, "address": found.address, "kind": found.kind,
        "name": found.name, "words": found.words, "seq": found.seq, "at": found.at,
        "seconds": None if found.seconds is None else round(found.seconds, 3),
        "outcome": found.outcome, "within": found.within, "answers": found.spent.answers,
        "usage": msgspec.to_builtins(found.spent.usage), "cost": found.spent.cost,
    }  # fmt: skip


def outcome_of(deed: Deed, node: Node) -> str:
    match deed:
        case ModelStep(end=end):
            return state(_answered(end), node)
        case ToolStep(end=end):
            waits = any(c.call.id == deed.id for c in node.view.talk.asked)
            open_ = state("", node)
            waiting = "waiting" if waits and open_ == "running" else open_
            return end.outcome if end else waiting
        case Aside():
            return state(fate(deed), node)
        case Birth(end=end):
            return state(end.status if end else "", node)


def _answered(end: ModelAnswered | ModelFailed | None) -> str:
    if end is None:
        return ""
    if isinstance(end, ModelFailed):
        return "failed"
    return "stopped" if end.partial else "done"


def _traced(deed: Deed, node: Node, now: float, label: Labels) -> Traced:
    outcome = outcome_of(deed, node)
    began = deed.at
    if isinstance(deed, ToolStep):
        began = deed.at if deed.started is None else deed.started
    until = deed.ended
    if until is None and outcome != "cut_off":
        until = now
    kind, name, words = _about(deed, label)
    name = name or (node.view.talk.briefed.model if kind == "model" else "")
    within = ""
    match deed:
        case ToolStep(made=made) if made:
            within = made.within
        case Aside(reserved):
            within = reserved.call_id
        case Birth(born):
            within = born.call_id
        case _:
            pass
    return Traced(
        node.address, kind, deed.id, name, words, deed.seq, began,
        None if until is None else max(0.0, until - began),
        outcome, spent_by(deed), within,
    )  # fmt: skip


def _about(deed: Deed, label: Labels) -> tuple[str, str, str]:
    """Its kind, whom it was about, and in which words."""
    match deed:
        case ModelStep(end=end):
            model = end.model if end else ""
            said = end.message.text if isinstance(end, ModelAnswered) else ""
            why = end.reason if isinstance(end, ModelFailed) else said
            return "model", model, _short(why)
        case ToolStep(call):
            return "tool", call.name, _short(label(call))
        case Aside(reserved, end=end):
            model = (end.model if end else "") or reserved.model
            return reserved.purpose, model, _short(reserved.words)
        case Birth(born):
            return "child", born.agent, _short(born.task)


def _short(words: str) -> str:
    return " ".join(words[:_WORDS].split())


def _line(each: Traced, wide: int, room: int) -> Line:
    """When, how long, where, what: and the words as far as there is room."""
    when = time.strftime("%H:%M:%S", time.localtime(each.at))
    took = "?" if each.seconds is None else duration(each.seconds)
    # The end of an address says which deed it is.
    address = on_one_line(each.address)
    spare = cells(address) - wide
    if spare > 0:
        address = f"…{address[spare + 1 :]}"
    address += " " * (wide - cells(address))
    name = f"  {on_one_line(each.name)}" if each.kind != "tool" and each.name else ""
    how = each.outcome.replace("_", " ")
    cost = f"  {about(each.spent)}{dollars(each.spent.dollars)}" if each.spent.cost else ""
    found: Line = (
        ("dim", f"{when}  {took:>10}  "), ("strong", address),
        (style_of(each.outcome), f"  {how}"), ("plain", name), ("dim", cost),
        ("plain", f"  {on_one_line(each.words)}" if each.words else ""),
    )  # fmt: skip
    return fit(found, room)
