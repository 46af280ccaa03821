"""The lines on stderr while `refold rlm` works: steps, subagents, model calls, usage."""

import os
import sys
from collections.abc import AsyncIterable, Iterator

import anyio

from refold.client.session import Session
from refold.console.capabilities import detect_capabilities
from refold.console.printer import Printer
from refold.headless.streams import print_error
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
from refold.values.live import ChildMoved
from refold.values.usage import Spent
from refold.views.escape import escape_to_one_line
from refold.views.notices import ESTIMATED_NOTICE
from refold.views.number_format import dollars, duration, estimate_sign, money, tokens
from refold.views.wrap import cut

_MAX_COLUMNS = 80
_TICK, _BEAT = 0.2, 10.0  # seconds


class RlmProgress:
    """The lines on stderr while it works; implements `headless.print.TurnOutput`.

    Each step and subagent gets a line. Between them the current usage is shown: on a
    terminal in a status line, otherwise from time to time.
    """

    def __init__(self) -> None:
        self.finished = anyio.Event()
        self.printed_types: tuple[type, ...] = ()  # each event may change what is shown
        self._paper = Printer(sys.stderr, detect_capabilities(sys.stderr, os.environ))
        self._leaves = _LeafCounter()
        self._cell = 0, 0  # leaves and failures reported so far
        self._moved: dict[str, ChildMoved] = {}  # of the children at work

    def print_line(self, text: str) -> None:
        """Print a line above the status, which reappears by itself."""
        self._paper.clear_status()
        print_error(text)

    def begin(self, session: Session) -> None:
        print_error(f"session {session.view.session.id}")

    async def follow(self, frames: AsyncIterable[Frame], session: Session) -> None:
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(self._show_progress, session, began)
            try:
                async for frame in frames:
                    if line := self._line_of_frame(frame, session):
                        self.print_line(line)
            finally:
                self._paper.clear_status()
            group.cancel_scope.cancel()
        duration_text = duration(anyio.current_time() - began)
        print_error(_join_parts("in all", *self._usage_so_far(session.view), duration_text))
        self.finished.set()

    async def _show_progress(self, session: Session, started_at: float) -> None:
        """Show signs of progress, however long it takes."""
        wheel, turn, last = self._paper.capabilities.sign("wheel"), 0, ""
        while True:
            await anyio.sleep(_TICK if self._paper.capabilities.moves else _BEAT)
            line = _join_parts(*self._usage_so_far(session.view))
            if self._paper.capabilities.moves:
                turn += 1
                duration_text = duration(anyio.current_time() - started_at)
                shown = f"{wheel[turn % len(wheel)]} {_join_parts(line, duration_text)}"
                self._paper.show_status((("dim", shown),))
            elif line != last:
                last = line
                print_error(f"  so far: {line}")

    def _line_of_frame(self, frame: Frame, session: Session) -> str:
        match frame.item:
            case Entry(_, event) as entry:
                self._leaves.apply(entry)
                if session.view.account.first_estimated == entry.seq:
                    self.print_line(ESTIMATED_NOTICE)
                return self._line_of_event(event, session)
            case ChildMoved(node) as moved if "/" not in node:
                self._moved[node] = moved
                return ""
            case _:
                return ""

    def _line_of_event(self, event: Event, session: Session) -> str:
        view = session.view
        match event:
            case ModelAnswered(message):
                calls = len(message.calls)
                verb = "runs code" if calls else "answers"
                return _join_parts(
                    f"step {view.turn.steps}: {verb}", _spent_note(view.turn.spent)
                )
            case ModelFailed(dropped=dropped):
                return f"the model {'is asked again' if dropped else 'failed'}"
            case Ended(_, outcome) if self._leaves.asked > self._cell[0]:
                asked, failed = self._leaves.asked, self._leaves.failed
                new = _calls_text(asked - self._cell[0], failed - self._cell[1])
                self._cell = asked, failed
                outcome_text = "code ran" if outcome == "done" else f"code {outcome}"
                return _join_parts(f"  {outcome_text}", new, _spent_note(view.turn.spent))
            case ChildBorn(child, task=task):
                return f"  {child} begins: {cut(escape_to_one_line(task), _MAX_COLUMNS)}"
            case ChildEnded(child, status=status, reason=reason, spent=spent):
                self._moved.pop(child, None)
                why = f": {escape_to_one_line(reason)}" if reason else ""
                state = "has failed" if status == "failed" else f"is {status}"
                return _join_parts(f"  {child} {state}{why}", _spent_note(spent))
            case _:
                return ""

    def _usage_so_far(self, view: View) -> Iterator[str]:
        """Return the usage so far, including running subagents."""
        below = self._moved.values()
        yield f"step {view.turn.steps}"
        if self._leaves.asked:
            yield _calls_text(self._leaves.asked, self._leaves.failed, self._leaves.open)
        if running := len(view.children.running):
            yield f"{running} {'subagent' if running == 1 else 'subagents'} running"
        spent = view.turn.spent
        count = spent.usage.input + spent.usage.output + sum(m.tokens for m in below)
        yield f"{tokens(count)} tokens"
        cost = spent.dollars + sum(moved.cost or 0.0 for moved in below)
        unknown = spent.unpriced or any(moved.cost is None for moved in below)
        known = f"{estimate_sign(spent.usage)}{dollars(cost)}"
        if unknown:
            yield f"{known} and more" if cost else "price unknown"
        else:
            yield known


class _LeafCounter:
    """Counts the model calls that code made: all, the failed ones, and those that are open."""

    def __init__(self) -> None:
        self.asked = self.failed = 0
        self._open: set[int] = set()

    @property
    def open(self) -> int:
        return len(self._open)

    def apply(self, entry: Entry) -> None:
        match entry.event:
            case Reserved(leaf=leaf) if leaf:
                self.asked += 1
                self._open.add(entry.seq)
            case Settled(reserved, failed=why) if reserved in self._open:
                self._open.discard(reserved)
                self.failed += bool(why)
            case _:
                pass


def _calls_text(asked: int, failed: int, under_way: int = 0) -> str:
    text = f"{asked:,} model call{'' if asked == 1 else 's'}"
    more = f", {failed:,} failed" if failed else ""
    return f"{text}{more}{f', {under_way:,} under way' if under_way else ''}"


def _spent_note(spent: Spent) -> str:
    count = spent.usage.input + spent.usage.output
    return _join_parts(f"{tokens(count)} tokens" if count else "", money(spent))


def _join_parts(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
