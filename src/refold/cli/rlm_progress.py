"""What `refold rlm` tells on stderr while it works: steps, leaves, children, money. Plain.

Whoever wants to see all of it looks with `refold tree`, even while it runs.
"""

import sys
from collections.abc import AsyncIterable

import anyio

from refold.journal.events import (
    ChildBorn,
    ChildEnded,
    Ended,
    Entry,
    Event,
    ModelAnswered,
    ModelFailed,
    Reserved,
)
from refold.journal.frame import Frame
from refold.session.session import Session
from refold.views.cells import cut
from refold.views.counts import money
from refold.views.escape import on_one_line

_WIDEST = 80
_SOME = 25  # model calls of code, after which their number is told


class Progress:
    """Implements `headless.Out`."""

    def __init__(self) -> None:
        self.finished = anyio.Event()
        self._leaves = 0  # told so far

    def begin(self, session: Session) -> None:
        _say(f"session {session.view.about.id}")

    async def follow(self, frames: AsyncIterable[Frame], session: Session) -> None:
        async for frame in frames:
            if isinstance(frame.item, Entry) and (
                told := self._told(frame.item.event, session)
            ):
                _say(told)
        self.finished.set()

    def _told(self, event: Event, session: Session) -> str:
        view = session.view
        match event:
            case ModelAnswered(message):
                calls = len(message.calls)
                does = "runs code" if calls else "answers"
                return _joined(f"step {view.turn.steps}: {does}", money(view.turn.spent))
            case ModelFailed():
                return "the model failed"
            case Reserved(leaf=leaf) if leaf and leaf % _SOME == 0:
                return _joined(f"  {leaf:,} model calls so far", money(view.turn.spent))
            case Ended(_, outcome) if view.family.leaves > self._leaves:
                new, self._leaves = view.family.leaves - self._leaves, view.family.leaves
                return _joined(
                    f"  {'code ran' if outcome == 'done' else f'code {outcome}'}",
                    f"{new:,} model calls",
                    money(view.turn.spent),
                )
            case ChildBorn(child, task=task):
                return f"  {child} begins: {cut(on_one_line(task), _WIDEST)}"
            case ChildEnded(child, status=status, reason=reason, spent=spent):
                why = f": {on_one_line(reason)}" if reason else ""
                return _joined(f"  {child} is {status}{why}", money(spent))
            case _:
                return ""


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _say(words: str) -> None:
    sys.stderr.write(f"refold: {words}\n")
