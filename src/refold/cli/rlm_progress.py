"""Prints lines on stderr while `refold rlm` works: steps, subagents, model calls, usage."""

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
_STATUS_SECONDS, _LINE_SECONDS = 0.2, 10.0  # between updates, on a terminal and otherwise


class RlmProgress:
    """Prints lines on stderr during a turn. Implements `headless.print.TurnOutput`.

    Each step and each subagent gets a line. The usage is shown in a status line on a terminal,
    otherwise in a line at intervals. A leaf is a model call that code makes.
    """

    def __init__(self) -> None:
        self.finished = anyio.Event()
        self.printed_types: tuple[type, ...] = ()  # each event may change what is shown
        self._printer = Printer(sys.stderr, detect_capabilities(sys.stderr, os.environ))
        self._leaves = _LeafCounter()
        self._reported_calls = 0  # calls of code that were reported so far
        self._reported_failures = 0  # those of them that failed
        self._child_progress: dict[str, ChildMoved] = {}  # of the running children

    def print_line(self, text: str) -> None:
        """Print a line above the status line."""
        self._printer.clear_status()
        print_error(text)

    def begin(self, session: Session) -> None:
        print_error(f"session {session.view.session.id}")

    async def follow(self, frames: AsyncIterable[Frame], session: Session) -> None:
        """Print a line for each frame that needs one, and the usage at the end."""
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(self._show_progress, session, began)
            try:
                async for frame in frames:
                    if line := self._line_of_frame(frame, session):
                        self.print_line(line)
            finally:
                self._printer.clear_status()
            group.cancel_scope.cancel()
        duration_text = duration(anyio.current_time() - began)
        print_error(_join_parts("in all", *self._usage_so_far(session.view), duration_text))
        self.finished.set()

    async def _show_progress(self, session: Session, started_at: float) -> None:
        """Show the usage repeatedly until this task is cancelled."""
        has_status_line = self._printer.capabilities.moves
        spinner = self._printer.capabilities.sign("wheel")
        position = 0
        last_usage = ""
        while True:
            await anyio.sleep(_STATUS_SECONDS if has_status_line else _LINE_SECONDS)
            usage = _join_parts(*self._usage_so_far(session.view))
            if has_status_line:
                position = (position + 1) % len(spinner)
                elapsed = duration(anyio.current_time() - started_at)
                text = f"{spinner[position]} {_join_parts(usage, elapsed)}"
                self._printer.show_status((("dim", text),))
            elif usage != last_usage:
                last_usage = usage
                print_error(f"  so far: {usage}")

    def _line_of_frame(self, frame: Frame, session: Session) -> str:
        """Return the line to print for `frame`, or "" if it needs none."""
        match frame.item:
            case Entry(_, event) as entry:
                self._leaves.apply(entry)
                if session.view.account.first_estimated == entry.seq:
                    self.print_line(ESTIMATED_NOTICE)
                return self._line_of_event(event, session)
            # only children of the session itself, not those of its children
            case ChildMoved(node) as progress if "/" not in node:
                self._child_progress[node] = progress
                return ""
            case _:
                return ""

    def _line_of_event(self, event: Event, session: Session) -> str:
        """Return the line to print for an event, or "" if it needs none."""
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
            # code that called models has ended
            case Ended(_, outcome) if self._leaves.asked > self._reported_calls:
                new_calls = self._leaves.asked - self._reported_calls
                new_failures = self._leaves.failed - self._reported_failures
                self._reported_calls += new_calls
                self._reported_failures += new_failures
                new = _calls_text(new_calls, new_failures)
                outcome_text = "code ran" if outcome == "done" else f"code {outcome}"
                return _join_parts(f"  {outcome_text}", new, _spent_note(view.turn.spent))
            case ChildBorn(child, task=task):
                return f"  {child} begins: {cut(escape_to_one_line(task), _MAX_COLUMNS)}"
            case ChildEnded(child, status=status, reason=reason, spent=spent):
                self._child_progress.pop(child, None)
                why = f": {escape_to_one_line(reason)}" if reason else ""
                state = "has failed" if status == "failed" else f"is {status}"
                return _join_parts(f"  {child} {state}{why}", _spent_note(spent))
            case _:
                return ""

    def _usage_so_far(self, view: View) -> Iterator[str]:
        """Yield texts about the usage so far, including that of running subagents."""
        children = self._child_progress.values()
        yield f"step {view.turn.steps}"
        if self._leaves.asked:
            yield _calls_text(self._leaves.asked, self._leaves.failed, self._leaves.open)
        running = len(view.children.running)
        if running:
            noun = "subagent" if running == 1 else "subagents"
            yield f"{running} {noun} running"
        spent = view.turn.spent
        own_tokens = spent.usage.input + spent.usage.output
        child_tokens = sum(child.tokens for child in children)
        yield f"{tokens(own_tokens + child_tokens)} tokens"
        known_cost = spent.dollars + sum(child.cost or 0.0 for child in children)
        is_whole = not spent.unpriced and all(child.cost is not None for child in children)
        cost_text = f"{estimate_sign(spent.usage)}{dollars(known_cost)}"
        if is_whole:
            yield cost_text
        elif known_cost:
            yield f"{cost_text} and more"
        else:
            yield "price unknown"


class _LeafCounter:
    """Counts the model calls of code: all calls, failed calls and running calls."""

    def __init__(self) -> None:
        self.asked = self.failed = 0
        self._open: set[int] = set()

    @property
    def open(self) -> int:
        return len(self._open)

    def apply(self, entry: Entry) -> None:
        """Count the model call of code that the event begins or ends. Ignore other events."""
        match entry.event:
            case Reserved(leaf=leaf) if leaf:
                self.asked += 1
                self._open.add(entry.seq)
            case Settled(reserved, failed=why) if reserved in self._open:
                self._open.discard(reserved)
                if why:
                    self.failed += 1
            case _:
                pass


def _calls_text(asked: int, failed: int, open_count: int = 0) -> str:
    """Return the numbers of model calls as text, without those that are 0."""
    text = f"{asked:,} model call" if asked == 1 else f"{asked:,} model calls"
    if failed:
        text += f", {failed:,} failed"
    if open_count:
        text += f", {open_count:,} under way"
    return text


def _spent_note(spent: Spent) -> str:
    count = spent.usage.input + spent.usage.output
    return _join_parts(f"{tokens(count)} tokens" if count else "", money(spent))


def _join_parts(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
