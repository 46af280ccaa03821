"""A call of a session, whole: what was to be done, who allowed it, what came of it. Pure."""

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from refold.journal.tree import Node
from refold.views.calls import arguments as object_in
from refold.views.counts import duration
from refold.views.deeds import ToolStep
from refold.views.escape import on_one_line, visible
from refold.views.result import arguments
from refold.views.styled import Line, line
from refold.views.trace import outcome_of
from refold.views.tree import style_of


class CallShown(Struct, frozen=True):
    """`text` is all of its result, also what the model was not shown of it."""

    node: Node
    made: ToolStep
    outcome: str
    text: str = ""

    @property
    def seconds(self) -> float | None:
        """Without the time in which it waited for a person."""
        made = self.made
        if made.ended is None:
            return None
        return made.ended - (made.at if made.started is None else made.started)


def call_shown(node: Node, made: ToolStep, blob: Callable[[str], str]) -> CallShown:
    """`blob` gives the text of a blob, or says why it cannot."""
    end = made.end
    text = "" if end is None else blob(end.whole) if end.whole else end.text
    return CallShown(node, made, outcome_of(made, node), text)


def call_lines(found: CallShown) -> Iterator[Line]:
    made, call = found.made, found.made.call
    how, seconds = found.outcome, found.seconds
    took = "" if seconds is None else f" · {duration(seconds)}"
    yield (
        ("strong", f"{found.node.address}/{made.id}"),
        ("plain", f" · {on_one_line(call.name)}"),
        (style_of(how), f" · {how.replace('_', ' ')}"), ("dim", took),
    )  # fmt: skip
    by = f"the code of {made.made.within}" if made.made else f"the model, step {made.step}"
    yield line(f"called by {on_one_line(by)}", "dim")
    yield line("")
    yield from _arguments(found)
    yield line("")
    yield from _verdict(made)
    if made.end is not None:
        yield line("")
        yield line("result", "heading")
        yield from (line(f"  {row}") for row in visible(found.text).split("\n"))


def call_document(found: CallShown) -> dict[str, object]:
    made, judged, answered, end = (
        found.made, found.made.judged, found.made.answered, found.made.end,
    )  # fmt: skip
    return {
        "type": "call", "address": f"{found.node.address}/{made.id}",
        "node": found.node.address, "session_id": found.node.session,
        "call_id": made.id, "tool": made.call.name, "arguments": arguments(made.call),
        "step": made.step, "within": made.made.within if made.made else "",
        "seq": made.seq, "at": made.at, "started": made.started,
        "seconds": None if found.seconds is None else round(found.seconds, 3),
        "verdict": judged.verdict if judged else "", "rule": judged.rule if judged else "",
        "source": judged.source if judged else "",
        "reason": judged.reason if judged else "",
        "answered": msgspec.to_builtins(answered) if answered else None,
        "outcome": found.outcome,
        "text": end.text if end else "",
        "whole": found.text if end and end.whole else None,  # None: the model saw all
        "shown": msgspec.to_builtins(end.shown) if end else [],
    }  # fmt: skip


def _arguments(found: CallShown) -> Iterator[Line]:
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


def _verdict(made: ToolStep) -> Iterator[Line]:
    judged, answered = made.judged, made.answered
    if judged is None:
        yield line("not judged yet", "dim")
        return
    rule = f" by {judged.rule}" if judged.rule else ""
    source = f" ({judged.source})" if judged.source else ""
    why = f": {judged.reason}" if judged.reason else ""
    yield line(on_one_line(f"verdict {judged.verdict}{rule}{source}{why}"))
    if answered is not None:
        said = "yes" if answered.allowed else "no"
        more = " / ".join((answered.reason, *answered.answers)).strip(" /")
        yield line(on_one_line(f"a person said {said}{f': {more}' if more else ''}"))
