"""What `refold rlm` tells on stderr while it works: steps, leaves, children, money. Plain.

Steps and agents get a line each. Between them it is told what all of it used so far: on a
terminal in a line that is taken back, otherwise from time to time. Whoever wants to see
all of it looks with `refold tree`, even while it runs.
"""

import os
import sys
from collections.abc import AsyncIterable, Iterator

import anyio

from refold.client.session import Session
from refold.headless.streams import complain
from refold.journal.events.kinds import (
    ChildBorn,
    ChildEnded,
    Ended,
    Entry,
    Event,
    Frame,
    ModelAnswered,
    ModelFailed,
    Reserved,
    Settled,
)
from refold.journal.state.fold import View
from refold.terminal.screen.capabilities import look
from refold.terminal.screen.printer import Printer
from refold.values.live import ChildMoved
from refold.values.usage import Spent
from refold.views.cell_width import cut
from refold.views.escape import on_one_line
from refold.views.notices import ESTIMATED
from refold.views.number_format import dollars, duration, estimate_sign, money, tokens

_WIDEST = 80
_TICK, _BEAT = 0.2, 10.0  # seconds


class RlmProgress:
    """Implements `headless.Out`."""

    def __init__(self) -> None:
        self.finished = anyio.Event()
        self._paper = Printer(sys.stderr, look(sys.stderr, os.environ))
        self._leaves = _Leaves()
        self._cell = 0, 0  # leaves and failures, told so far
        self._moved: dict[str, ChildMoved] = {}  # of the children at work

    def say(self, words: str) -> None:
        """A line that is no part of the status, which comes back by itself."""
        self._paper.no_status()
        complain(words)

    def begin(self, session: Session) -> None:
        complain(f"session {session.view.session.id}")

    async def follow(self, frames: AsyncIterable[Frame], session: Session) -> None:
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(self._pulse, session, began)
            try:
                async for frame in frames:
                    if told := self._heard(frame, session):
                        self.say(told)
            finally:
                self._paper.no_status()
            group.cancel_scope.cancel()
        took = duration(anyio.current_time() - began)
        complain(_joined("in all", *self._so_far(session.view), took))
        self.finished.set()

    async def _pulse(self, session: Session, began: float) -> None:
        """Something is seen to happen, however long it takes."""
        wheel, turn, last = self._paper.look.sign("wheel"), 0, ""
        while True:
            await anyio.sleep(_TICK if self._paper.look.moves else _BEAT)
            said = _joined(*self._so_far(session.view))
            if self._paper.look.moves:
                turn += 1
                took = duration(anyio.current_time() - began)
                shown = f"{wheel[turn % len(wheel)]} {_joined(said, took)}"
                self._paper.status((("dim", shown),))
            elif said != last:
                last = said
                complain(f"  so far: {said}")

    def _heard(self, frame: Frame, session: Session) -> str:
        match frame.item:
            case Entry(_, event) as entry:
                self._leaves.heard(entry)
                if session.view.account.first_estimated == entry.seq:
                    self.say(ESTIMATED)
                return self._told(event, session)
            case ChildMoved(node) as moved if "/" not in node:
                self._moved[node] = moved
                return ""
            case _:
                return ""

    def _told(self, event: Event, session: Session) -> str:
        view = session.view
        match event:
            case ModelAnswered(message):
                calls = len(message.calls)
                does = "runs code" if calls else "answers"
                return _joined(f"step {view.turn.steps}: {does}", _used(view.turn.spent))
            case ModelFailed():
                return "the model failed"
            case Ended(_, outcome) if self._leaves.asked > self._cell[0]:
                asked, failed = self._leaves.asked, self._leaves.failed
                new = _calls(asked - self._cell[0], failed - self._cell[1])
                self._cell = asked, failed
                ran = "code ran" if outcome == "done" else f"code {outcome}"
                return _joined(f"  {ran}", new, _used(view.turn.spent))
            case ChildBorn(child, task=task):
                return f"  {child} begins: {cut(on_one_line(task), _WIDEST)}"
            case ChildEnded(child, status=status, reason=reason, spent=spent):
                self._moved.pop(child, None)
                why = f": {on_one_line(reason)}" if reason else ""
                came = "has failed" if status == "failed" else f"is {status}"
                return _joined(f"  {child} {came}{why}", _used(spent))
            case _:
                return ""

    def _so_far(self, view: View) -> Iterator[str]:
        """Of all of it, the children at work included."""
        below = self._moved.values()
        yield f"step {view.turn.steps}"
        if self._leaves.asked:
            yield _calls(self._leaves.asked, self._leaves.failed, self._leaves.open)
        if running := len(view.children.running):
            yield f"{running} {'child' if running == 1 else 'children'} at work"
        spent = view.turn.spent
        count = spent.usage.input + spent.usage.output + sum(m.tokens for m in below)
        yield f"{tokens(count)} tokens"
        cost = spent.dollars + sum(moved.cost or 0.0 for moved in below)
        unknown = spent.unpriced or any(moved.cost is None for moved in below)
        known = f"{estimate_sign(spent)}{dollars(cost)}"
        if unknown:
            yield f"{known} and more" if cost else "price unknown"
        else:
            yield known


class _Leaves:
    """How many models code asked, and what came of them."""

    def __init__(self) -> None:
        self.asked = self.failed = 0
        self._open: set[int] = set()

    @property
    def open(self) -> int:
        return len(self._open)

    def heard(self, entry: Entry) -> None:
        match entry.event:
            case Reserved(leaf=leaf) if leaf:
                self.asked += 1
                self._open.add(entry.seq)
            case Settled(reserved, failed=why) if reserved in self._open:
                self._open.discard(reserved)
                self.failed += bool(why)
            case _:
                pass


def _calls(asked: int, failed: int, under_way: int = 0) -> str:
    said = f"{asked:,} model call{'' if asked == 1 else 's'}"
    more = f", {failed:,} failed" if failed else ""
    return f"{said}{more}{f', {under_way:,} under way' if under_way else ''}"


def _used(spent: Spent) -> str:
    count = spent.usage.input + spent.usage.output
    return _joined(f"{tokens(count)} tokens" if count else "", money(spent))


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
