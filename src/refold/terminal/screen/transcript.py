"""Prints what is new in the screen value, each thing once.

It gets every document of the session, in order. `views.screen` decides what there is to show; this
module remembers only what was printed. The line of a single call is printed before its result;
calls that run in parallel are named in the status and printed with their results. `work` asks the
questions.
"""

from collections.abc import Callable, Container, Sequence
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from refold.client.types import Entry, Frame, Tool, View, events
from refold.console.printer import Printer
from refold.terminal.screen.status_line import StatusLine
from refold.terminal.screen.streamed_text import StreamedText
from refold.values.display import ASK_USER
from refold.values.live import (
    CallComing,
    ChildMoved,
    Progress,
    SubagentDelta,
    TextCame,
    ThinkingCame,
    Waiting,
)
from refold.values.modes import Mode
from refold.values.tools import TASK
from refold.views.call_summary import ResultFold, call_rows, full_label, label
from refold.views.children_list import (
    live_rows,
    report_lines,
    report_rows,
    reported_calls,
    running_summary,
)
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import duration
from refold.views.screen.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    DroppedBlock,
    MessageBlock,
    NoticeBlock,
    Open,
    StreamingBlock,
    ThinkingBlock,
    TurnEndBlock,
    interactive_turn_rows,
    is_plan,
    message_rows,
    result_rows,
)
from refold.views.screen.conversation import is_from_child, is_from_shell
from refold.views.screen.screen import Screen, apply_frame, screen_at
from refold.views.screen.status import Status, ports_text
from refold.views.styled import Line, line
from refold.views.wrap import cut

FindTool: TypeAlias = Callable[[str], Tool | None]

WINDOW_TOKENS = 32_000  # tokens
_MAX_MADE_CALLS = 10  # printed calls made by the code of one call
_RESULT_FOLD = ResultFold("; /expand shows all")
_MESSAGE_HINT = "; /expand message shows all"
_MAX_NAMED_CALLS = 3  # names of calls that run in parallel
_NAME_CELLS = 24  # cells of such a name
_TAIL_CHARS = 60  # characters of what a subagent writes


class TranscriptPrinter:
    """Prints the transcript. `own` are the client keys of messages typed here.

    `tool` finds a tool by its name. `window` is in tokens, for models of unknown window.
    """

    def __init__(
        self,
        printer: Printer,
        clock: Callable[[], float],
        tool: FindTool = lambda _: None,
        window: int = WINDOW_TOKENS,
    ) -> None:
        self.own, self.usage = set[str](), True  # usage: print what a turn used
        self._printed_early = set[int]()  # messages that the model had not got by then
        self.own_mode: Mode | None = None  # a mode chosen in an answer here
        self.hint = True  # whether the status names the keys
        self._printer, self._tool, self._window = printer, tool, window
        self._now = Screen(window=window)
        self._last = ""  # the call whose line was printed last, with nothing after it
        self._put: set[str] = set()  # calls whose question was put here, until they run
        self._dense = False  # the last block was short: no gap follows
        self._retried = ""  # why the model is called again, as printed last
        self._made: dict[str, int] = {}  # by the code of each call that runs
        self._at_work = _SubagentActivity(clock)
        self._doing = StatusLine(clock, printer.capabilities.sign("wheel"))
        self._speech = StreamedText(printer, self._doing)

    def begin(self, view: View) -> None:
        """Print what comes after this view, and nothing before it."""
        self._now = screen_at(view, self._window)
        self._doing.set_activity(self._now.status.doing)

    def show(self, frame: Frame) -> None:
        before, self._now = self._now, apply_frame(self._now, frame)
        now = self._now
        own = self._is_own_choice(frame)
        for index in range(len(before.done), len(now.done)):
            if not (own and isinstance(now.done[index], NoticeBlock)):
                self._print_block(now.done[index])
        if now.coming is not before.coming:
            self._print_streamed(before.coming, now.coming)
        if now.open is not before.open:
            self._print_open_blocks(before, now)
        if isinstance(frame.item, SubagentDelta | ChildMoved):
            self._at_work.add_news(frame.item)
        if isinstance(frame.item, Entry) or now.status is not before.status:
            self._update_activity(before.status, now.status)
        if now.view.turn.open_request is not before.view.turn.open_request:
            self._speech.begin_response()

    def _is_own_choice(self, frame: Frame) -> bool:
        """Return True if this mode was chosen in an answer here, which already shows it."""
        event = frame.item.event if isinstance(frame.item, Entry) else None
        own = isinstance(event, events.ModeChanged) and event.mode == self.own_mode
        if own:
            self.own_mode = None
        return own

    def print_again(self, screen: Screen, max_blocks: int) -> None:
        """Print an earlier screen again: its first block and the newest `max_blocks`."""
        self._now, blocks = screen, screen.done
        for index, block in enumerate(blocks):
            left_out = len(blocks) - max_blocks - 1
            if index == 0 or index > left_out:
                self._print_block(block)
            elif index == 1:
                steps = "1 step" if left_out == 1 else f"{left_out} steps"
                self._print_notice(line(f"… {steps} not shown …", "dim"))

    def subagent_rows(self) -> list[Line]:
        """Return a row for each running subagent, erased with the status line."""
        most = self._max_subagent_rows
        return (
            self._at_work.rows(self._now, self._printer.free_columns - 1, most)
            if most
            else []
        )

    @property
    def _max_subagent_rows(self) -> int:
        return self._printer.max_status_rows - 1 if self._printer.capabilities.moves else 0

    def status(self) -> Line:
        """Return what is being done now, for a line that will be erased."""
        view, moved = self._now.view, {child.node: child for child in self._now.moved}
        alone = not self._max_subagent_rows
        below = running_summary(view.children, moved, view.turn.seq, doing=alone)
        if not below and self._doing.activity:  # otherwise a question has the line
            below = _running_call_names(self._now.open, self._last, self._tool)
        if below or self._doing.activity:
            below = "  ".join(filter(None, (below, ports_text(self._now.ports))))
        return self._doing.line(_waiting_messages_text(view), below, hint=self.hint)

    def note_question(self, call_id: str) -> None:
        """Note that a question about this call was printed, in place of its line."""
        self._doing.set_activity("")
        self._put.add(call_id)
        self._last, self._dense = call_id, False

    def _print_block(self, block: Block) -> None:
        match block:
            case MessageBlock():
                self._print_user_message(block)
            case AnswerBlock() | DroppedBlock():
                self._print_message(block)
            case ThinkingBlock(text=text):
                if new := self._speech.unprinted_thinking(text):
                    self._speech.show_thinking(new)
                    self._close_text()
            case CallBlock():
                self._print_result(block)
            case NoticeBlock():
                # A live row shows a running subagent; without live rows, its start is
                # printed.
                if not (block.begins and self._max_subagent_rows):
                    self._print_notice(block.line)
                    self._printer.print_nested_lines(
                        report_rows(block.report, self._printer.free_columns - 4)
                    )
            case TurnEndBlock():
                self._close_text()
                self._doing.clear()
                self._printer.ensure_blank_line()
                self._printer.print_lines(interactive_turn_rows(block, usage=self.usage))
            case _:
                assert_never(block)

    def _print_message(self, block: AnswerBlock | DroppedBlock) -> None:
        if new := self._speech.unprinted_text(block.text):
            self._note_text(begins=self._speech.print_text(new))
            self._close_text()
        if isinstance(block, DroppedBlock):
            self._close_text()
            self._print_notice(line(escape_to_one_line(block.mark), "warn"))

    def _print_user_message(self, block: MessageBlock) -> None:
        if _is_on_screen(block, self.own) or block.seq in self._printed_early:
            return
        if block in self._now.open:
            self._printed_early.add(block.seq)
        self._prepare_for_other_output()
        self._printer.ensure_blank_line()
        if is_from_child(block.sender):
            rows = report_lines(block.sender, block.words, self._printer.free_columns)
            self._printer.print_lines(rows)
            self._dense = False
        else:
            sign = self._printer.capabilities.sign("prompt")
            first, *others = message_rows(block, self._printer.free_columns, _MESSAGE_HINT)
            self._printer.print_line((("person", f"{sign} "), *first))
            self._printer.print_lines(others)
        self._last = ""

    def _print_streamed(
        self, before: tuple[StreamingBlock, ...], now: tuple[StreamingBlock, ...]
    ) -> None:
        """Print the new part of the streaming response."""
        if len(now) < len(before):
            self._close_text()
        for index in range(max(min(len(before), len(now)) - 1, 0), len(now)):
            part = now[index]
            new = part.text.after(len(before[index].text) if index < len(before) else 0)
            match part.kind:
                case "words":
                    self._note_text(begins=self._speech.add_text(new))
                case "thought":
                    self._speech.close_text()
                    self._speech.add_thinking(new)
                case "call":
                    self._close_text()

    def _print_open_blocks(self, before: Screen, now: Screen) -> None:
        stood = {b.call.id: b for b in before.open if isinstance(b, CallBlock)}
        waited = {b.seq for b in before.open if isinstance(b, MessageBlock)}
        alone = sum(isinstance(b, CallBlock) and not b.within for b in now.open) == 1
        for block in now.open:
            if isinstance(block, MessageBlock):
                if block.seq not in waited:
                    self._print_waiting_message(block)
                continue
            old = stood.get(block.call.id)
            if block.stage == "running" and (old is None or old.stage != "running"):
                self._print_call(block, alone=alone)
            if old is not None and old.tail != block.tail:
                self._doing.set_output(block.call.id, block.tail)

    def _print_waiting_message(self, block: MessageBlock) -> None:
        """Print a message that waits. One that replaces a stopped turn is shown after it."""
        if not block.later:
            self._print_user_message(block)
            return
        if _is_on_screen(block, self.own) or self._now.view.turn.stopped:
            return
        self._print_notice(line(f"after this turn: {visible(block.user_text)}", "dim"))

    def _print_notice(self, line: Line) -> None:
        self._prepare_for_other_output()
        if not self._dense:
            self._printer.ensure_blank_line()
        self._printer.print_line(line)
        self._last, self._dense = "", True

    def _update_activity(self, before: Status, now: Status) -> None:
        self._retried = self._retried if now.tries else ""
        if now.tries > before.tries and now.reason != self._retried:
            self._retried = now.reason  # once in a series
            # A status that can be drawn again counts down and shows the reason itself.
            if not (now.attempt and self._printer.capabilities.moves):
                self._printer.print_text(_retry_reason(now), "warn")
        # A question put here took the status line; the work may have continued.
        if now.doing != self._doing.activity or now.tries != before.tries:
            self._doing.set_activity(now.doing, now.seconds, now)

    def _note_text(self, *, begins: bool) -> None:
        if begins:
            self._last, self._dense = "", False

    def _close_text(self) -> None:
        if self._speech.close():
            self._dense = False

    def _prepare_for_other_output(self) -> None:
        """Prepare for output that does not end the current text."""
        if self._speech.prepare_for_other_output():
            self._dense = False

    def _print_call(self, block: CallBlock, *, alone: bool) -> None:
        if self._has_printed_enough(block):
            return
        if block.call.name != ASK_USER:
            self._put.discard(block.call.id)
        if alone and block.call.name != TASK:  # its subagent's start is printed
            self._print_call_line(block)

    def _print_call_line(self, block: CallBlock) -> None:
        call = block.call
        if self._last == call.id:
            return
        self._close_text()
        if not self._dense:  # short calls in a row stand close together
            self._printer.ensure_blank_line()
        text = full_label(call, self._tool(call.name))
        head, *below = call_rows(text, self._printer.free_columns - 1, _RESULT_FOLD.hint)
        self._printer.print_line(
            (("accent", f"{self._printer.capabilities.sign('call')} "), *head)
        )
        self._printer.print_lines((("plain", "  "), *row) for row in below)
        self._last, self._dense = call.id, False

    def _has_printed_enough(self, block: CallBlock) -> bool:
        """Return True if code has made as many calls as are printed."""
        return self._made.get(block.within, 0) >= _MAX_MADE_CALLS

    def _print_result(self, block: CallBlock) -> None:
        id_, directory = block.call.id, self._now.view.session.directory
        self._doing.forget_output(id_)
        many = self._has_printed_enough(block)
        if block.within:
            self._made[block.within] = self._made.get(block.within, 0) + 1
        if many:
            return
        rows = result_rows(block, self._printer.free_columns - 4, directory, _RESULT_FOLD)
        if (more := self._made.pop(id_, 0) - _MAX_MADE_CALLS) > 0:
            rows.insert(0, line(f"… {more} more calls by its code …", "dim"))
        # The result of a question is printed below it, that of a subagent on a line of its
        # own.
        if id_ not in self._put and not _is_reported_elsewhere(block, self._now.view):
            self._print_call_line(block)
            self._printer.print_nested_lines([] if is_plan(block) else rows)
        self._put.discard(id_)
        self._last, self._dense = "", len(rows) == 1


class _SubagentActivity:
    """What each running subagent does, and since when."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = dict[str, float]()  # when each was first seen running
        self._writing = dict[str, str]()  # the last text of each that writes

    def add_news(self, news: SubagentDelta | ChildMoved) -> None:
        match news:
            case ChildMoved(node) | SubagentDelta(
                node, CallComing() | Waiting() | Progress()
            ):
                self._writing.pop(node, None)
            case SubagentDelta(node, TextCame(text) | ThinkingCame(text)):
                self._writing[node] = (self._writing.get(node, "") + text)[
                    -2 * _TAIL_CHARS :
                ]
            case _:
                pass

    def rows(self, screen: Screen, width: int, max_rows: int) -> list[Line]:
        children = screen.view.children
        if not children.running:
            return []
        now = self._clock()
        moved = {child.node: self._with_written_text(child) for child in screen.moved}
        for child in children.running:
            self._since.setdefault(child.name, now)
        seconds = {name: now - since for name, since in self._since.items()}
        return live_rows(children, moved, seconds, width, max_rows)

    def _with_written_text(self, progress: ChildMoved) -> ChildMoved:
        """Return the activity with the text that the subagent is writing, if any."""
        text = " ".join(self._writing.get(progress.node, "").split())
        return replace(progress, label=f"… {text[-_TAIL_CHARS:]}") if text else progress


def _is_on_screen(block: MessageBlock, own_ids: Container[str]) -> bool:
    """Return True if the message was typed here and is on the screen already."""
    return (block.key != "" and block.key in own_ids) or is_from_shell(block.sender)


def _is_reported_elsewhere(block: CallBlock, view: View) -> bool:
    """Return True if a subagent reports this call, and nothing else must be printed."""
    return block.stage == "done" and block.call.id in reported_calls(view.children)


def _running_call_names(open_: Sequence[Open], last: str, tool: FindTool) -> str:
    """Name the running calls, except the one whose line was printed last."""
    running = [
        block.call for block in open_
        if isinstance(block, CallBlock) and block.stage == "running"
        and not block.within and block.call.id != last
    ]  # fmt: skip
    named = [
        cut(label(call, tool(call.name)), _NAME_CELLS)
        for call in running[:_MAX_NAMED_CALLS]
    ]
    more = (
        [f"{len(running) - _MAX_NAMED_CALLS} more"]
        if len(running) > _MAX_NAMED_CALLS
        else []
    )
    return " · ".join([*named, *more])


def _waiting_messages_text(view: View) -> str:
    """Return how many messages wait, and for what."""
    waiting = view.conversation.undelivered if view.turn.steps else ()
    unheard = [
        message.said.when for message in waiting if not is_from_shell(message.said.sender)
    ]
    soon, later = unheard.count("now"), unheard.count("next")
    parts = (f"{soon} for the next step", f"{later} after this turn")
    return " · ".join(
        part for part, count in zip(parts, (soon, later), strict=True) if count
    )


def _retry_reason(status: Status) -> str:
    wait = f"; retrying in {duration(status.seconds)}" if status.seconds else ""
    return visible(status.reason) + wait
