"""Prints the session's transcript: each finished item once.

`TranscriptPrinter` gets all events and live news of the session, in order. `views.screen`
decides what is shown; this module remembers what was printed. A single call is printed before
its result; calls that run in parallel are named in the status and printed with their results.
`work` asks the questions.
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
from refold.values.messages import ToolCall
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

WINDOW_TOKENS = 32_000
_NESTED_CELLS = 4  # the indent of lines below another line
_MAX_MADE_CALLS = 10  # printed calls that the code of one call makes
_RESULT_FOLD = ResultFold("; /expand shows all")
_MESSAGE_HINT = "; /expand message shows all"
_MAX_NAMED_CALLS = 3  # names of calls that run in parallel
_NAME_CELLS = 24  # the width of such a name
_TAIL_CHARS = 60  # the part of a subagent's text


class TranscriptPrinter:
    """Prints the transcript of a session.

    `own` are the client keys of messages typed at this terminal. `tool` returns the tool with a
    given name. `window` is the assumed size of the context window, in tokens, if it is unknown.
    """

    def __init__(
        self,
        printer: Printer,
        clock: Callable[[], float],
        tool: FindTool = lambda _: None,
        window: int = WINDOW_TOKENS,
    ) -> None:
        self.own = set[str]()  # the keys of messages that were typed here
        self.usage = True  # whether to print what a turn used
        self._printed_early = set[int]()  # messages that were printed while they waited
        self.own_mode: Mode | None = None  # a mode chosen in an answer here
        self.hint = True  # whether the status names the keys
        self._printer, self._tool, self._window = printer, tool, window
        self._screen = Screen(window=window)
        self._last_call = ""  # the call whose line was printed last, with nothing after it
        self._asked_calls = set[str]()  # calls whose question was printed, until they run
        self._was_short = False  # whether the last block was short, so that no gap follows
        self._retried = ""  # the last printed reason why the model is called again
        # How many ended calls the code of each running call has made, printed or not.
        self._calls_by_code = dict[str, int]()
        self._subagents = _SubagentActivity(clock)
        self._status_line = StatusLine(clock, printer.capabilities.sign("wheel"))
        self._streamed = StreamedText(printer, self._status_line)

    def begin(self, view: View) -> None:
        """Print only what comes after this view."""
        self._screen = screen_at(view, self._window)
        self._status_line.set_activity(self._screen.status.doing)

    def show(self, frame: Frame) -> None:
        """Print what an event or live news adds to the transcript."""
        before = self._screen
        now = self._screen = apply_frame(before, frame)
        is_own_choice = self._is_own_choice(frame)
        if is_own_choice:
            self.own_mode = None  # the choice explains only one mode change
        for index in range(len(before.done), len(now.done)):
            block = now.done[index]
            if is_own_choice and isinstance(block, NoticeBlock):
                continue  # the answer has shown it
            self._print_block(block)
        if now.coming is not before.coming:
            self._print_streamed(before.coming, now.coming)
        if now.open is not before.open:
            self._print_open_blocks(before, now)
        if isinstance(frame.item, SubagentDelta | ChildMoved):
            self._subagents.add_news(frame.item)
        if isinstance(frame.item, Entry) or now.status is not before.status:
            self._update_activity(before.status, now.status)
        if now.view.turn.open_request is not before.view.turn.open_request:
            self._streamed.begin_response()

    def _is_own_choice(self, frame: Frame) -> bool:
        """Return whether the frame is a mode change that the user chose in an answer at this
        terminal.

        The answer itself already shows the change.
        """
        event = frame.item.event if isinstance(frame.item, Entry) else None
        return isinstance(event, events.ModeChanged) and event.mode == self.own_mode

    def print_again(self, screen: Screen, max_blocks: int) -> None:
        """Print the first block and the last `max_blocks` blocks of an earlier screen.

        Between them, print how many blocks are left out.
        """
        self._screen = screen
        hidden_count = len(screen.done) - max_blocks - 1
        for index, block in enumerate(screen.done):
            if index == 0 or index > hidden_count:
                self._print_block(block)
            elif index == 1:
                steps = "1 step" if hidden_count == 1 else f"{hidden_count} steps"
                self._print_notice(line(f"… {steps} not shown …", "dim"))

    def subagent_rows(self) -> list[Line]:
        """Return a row for each running subagent, to be shown above the status line."""
        max_rows = self._max_subagent_rows
        if not max_rows:
            return []
        return self._subagents.rows(self._screen, self._printer.free_columns - 1, max_rows)

    @property
    def _max_subagent_rows(self) -> int:
        """The maximum number of rows above the status line; 0 if the terminal cannot erase
        them.
        """
        return self._printer.max_status_rows - 1 if self._printer.capabilities.moves else 0

    def status(self) -> Line:
        """Return the status line with the current activity."""
        view = self._screen.view
        progress = {moved.node: moved for moved in self._screen.moved}
        # If single subagents have no rows, the line says what they do.
        doing = not self._max_subagent_rows
        running = running_summary(view.children, progress, view.turn.seq, doing=doing)
        has_activity = bool(self._status_line.activity)  # otherwise a question has the line
        if not running and has_activity:
            running = _running_call_names(self._screen.open, self._last_call, self._tool)
        line_below = ""
        if running or has_activity:
            parts = running, ports_text(self._screen.ports)
            line_below = "  ".join(filter(None, parts))
        waiting = _waiting_messages_text(view)
        return self._status_line.line(waiting, line_below, hint=self.hint)

    def note_question(self, call_id: str) -> None:
        """Record that a question about this call was printed, so that its line is not printed,
        too.
        """
        self._status_line.set_activity("")
        self._asked_calls.add(call_id)
        self._last_call, self._was_short = call_id, False

    def _print_block(self, block: Block) -> None:
        """Print a finished block, as far as it is not printed yet."""
        match block:
            case MessageBlock():
                self._print_user_message(block)
            case AnswerBlock() | DroppedBlock():
                self._print_message(block)
            case ThinkingBlock(text=text):
                if new := self._streamed.unprinted_thinking(text):
                    self._streamed.show_thinking(new)
                    self._close_text()
            case CallBlock():
                self._print_result(block)
            case NoticeBlock():
                # A live row shows a running subagent; without live rows, its start is
                # printed.
                if not (block.begins and self._max_subagent_rows):
                    self._print_notice(block.line)
                    report_width = self._printer.free_columns - _NESTED_CELLS
                    self._printer.print_nested_lines(
                        report_rows(block.report, report_width)
                    )
            case TurnEndBlock():
                self._close_text()
                self._status_line.clear()
                self._printer.ensure_blank_line()
                self._printer.print_lines(interactive_turn_rows(block, usage=self.usage))
            case _:
                assert_never(block)

    def _print_message(self, block: AnswerBlock | DroppedBlock) -> None:
        """Print the rest of a response, and a mark if the response was dropped."""
        if new := self._streamed.unprinted_text(block.text):
            begins = self._streamed.print_text(new)
            self._note_text(begins=begins)
            self._close_text()
        if isinstance(block, DroppedBlock):
            self._close_text()
            self._print_notice(line(escape_to_one_line(block.mark), "warn"))

    def _print_user_message(self, block: MessageBlock) -> None:
        """Print a message, unless it was typed here or was printed while it waited."""
        if _is_on_screen(block, self.own) or block.seq in self._printed_early:
            return
        if block in self._screen.open:
            self._printed_early.add(block.seq)
        self._prepare_for_other_output()
        self._printer.ensure_blank_line()
        if is_from_child(block.sender):
            rows = report_lines(block.sender, block.words, self._printer.free_columns)
            self._printer.print_lines(rows)
            self._was_short = False
        else:
            sign = self._printer.capabilities.sign("prompt")
            first, *others = message_rows(block, self._printer.free_columns, _MESSAGE_HINT)
            self._printer.print_line((("person", f"{sign} "), *first))
            self._printer.print_lines(others)
        self._last_call = ""

    def _print_streamed(
        self, before: tuple[StreamingBlock, ...], now: tuple[StreamingBlock, ...]
    ) -> None:
        """Print the part of the current response that has arrived since `before`."""
        if len(now) < len(before):
            self._close_text()
        common_count = min(len(before), len(now))
        first_changed = max(common_count - 1, 0)  # the last common block may have grown
        for index, block in enumerate(now[first_changed:], first_changed):
            printed_chars = len(before[index].text) if index < len(before) else 0
            new_text = block.text.after(printed_chars)
            match block.kind:
                case "words":
                    begins = self._streamed.add_text(new_text)
                    self._note_text(begins=begins)
                case "thought":
                    self._streamed.close_text()
                    self._streamed.add_thinking(new_text)
                case "call":
                    self._close_text()

    def _print_open_blocks(self, before: Screen, now: Screen) -> None:
        """Print new waiting messages and started calls, and show new output in the status."""
        old_calls = {
            block.call.id: block for block in before.open if isinstance(block, CallBlock)
        }
        old_messages = {
            block.seq for block in before.open if isinstance(block, MessageBlock)
        }
        open_calls = [
            block for block in now.open if isinstance(block, CallBlock) and not block.within
        ]
        for block in now.open:
            if isinstance(block, MessageBlock):
                if block.seq not in old_messages:
                    self._print_waiting_message(block)
                continue
            old = old_calls.get(block.call.id)
            was_running = old is not None and old.stage == "running"
            if block.stage == "running" and not was_running:
                self._print_call(block, alone=len(open_calls) == 1)
            if old is not None and old.tail != block.tail:
                self._status_line.set_output(block.call.id, block.tail)

    def _print_waiting_message(self, block: MessageBlock) -> None:
        """Print a message that waits for delivery.

        If the turn is being stopped, print nothing: the message will begin the next turn.
        """
        if not block.later:
            self._print_user_message(block)
            return
        if _is_on_screen(block, self.own) or self._screen.view.turn.stopped:
            return
        self._print_notice(line(f"after this turn: {visible(block.user_text)}", "dim"))

    def _print_notice(self, line: Line) -> None:
        """Print a line, after an empty line unless the last block was short."""
        self._prepare_for_other_output()
        if not self._was_short:
            self._printer.ensure_blank_line()
        self._printer.print_line(line)
        self._last_call, self._was_short = "", True

    def _update_activity(self, before: Status, now: Status) -> None:
        """Show what the session does now, and print the reason for trying again.

        In a series of attempts, the same reason is printed only once.
        """
        if not now.tries:
            self._retried = ""
        if now.tries > before.tries and now.reason != self._retried:
            self._retried = now.reason
            # A status that can be drawn again counts down and shows the reason itself.
            if not (now.attempt and self._printer.capabilities.moves):
                self._printer.print_text(_retry_reason(now), "warn")
        # A question took the status line, and the work may have continued.
        if now.doing != self._status_line.activity or now.tries != before.tries:
            self._status_line.set_activity(now.doing, now.seconds, now)

    def _note_text(self, *, begins: bool) -> None:
        """Record that text was printed. With `begins`, it was the first piece of a text."""
        if begins:
            self._last_call, self._was_short = "", False

    def _close_text(self) -> None:
        if self._streamed.close():
            self._was_short = False

    def _prepare_for_other_output(self) -> None:
        """Prepare for output that interrupts the text of the response without ending it."""
        if self._streamed.prepare_for_other_output():
            self._was_short = False

    def _print_call(self, block: CallBlock, *, alone: bool) -> None:
        """Print the line of a call that starts.

        A call that is not `alone` prints nothing: its line is printed with its result.
        """
        if self._has_printed_enough(block):
            return
        if block.call.name != ASK_USER:
            self._asked_calls.discard(block.call.id)
        if alone and block.call.name != TASK:  # the start of its subagent is printed
            self._print_call_line(block)

    def _print_call_line(self, block: CallBlock) -> None:
        """Print the line of a call, unless it was the last thing that was printed."""
        call = block.call
        if self._last_call == call.id:
            return
        self._close_text()
        if not self._was_short:  # short calls in a row are printed without gaps
            self._printer.ensure_blank_line()
        text = full_label(call, self._tool(call.name))
        first, *others = call_rows(text, self._printer.free_columns - 1, _RESULT_FOLD.hint)
        sign = self._printer.capabilities.sign("call")
        self._printer.print_line((("accent", f"{sign} "), *first))
        self._printer.print_lines((("plain", "  "), *row) for row in others)
        self._last_call, self._was_short = call.id, False

    def _has_printed_enough(self, block: CallBlock) -> bool:
        """Return whether the code that made this call has its maximum of printed calls."""
        return self._calls_by_code.get(block.within, 0) >= _MAX_MADE_CALLS

    def _print_result(self, block: CallBlock) -> None:
        """Print a call with its result. Of many calls by the same code, only the first are
        printed.
        """
        id_, directory = block.call.id, self._screen.view.session.directory
        self._status_line.forget_output(id_)
        is_over_limit = self._has_printed_enough(block)
        if block.within:
            self._calls_by_code[block.within] = self._calls_by_code.get(block.within, 0) + 1
        if is_over_limit:
            return
        width = self._printer.free_columns - _NESTED_CELLS
        rows = result_rows(block, width, directory, _RESULT_FOLD)
        hidden_count = self._calls_by_code.pop(id_, 0) - _MAX_MADE_CALLS
        if hidden_count > 0:
            rows.insert(0, line(f"… {hidden_count} more calls by its code …", "dim"))
        # The result of a question is printed below the question, and the result of a subagent
        # on a line of its own.
        is_reported = _is_reported_elsewhere(block, self._screen.view)
        if id_ not in self._asked_calls and not is_reported:
            self._print_call_line(block)
            self._printer.print_nested_lines([] if is_plan(block) else rows)
        self._asked_calls.discard(id_)
        self._last_call, self._was_short = "", len(rows) == 1


class _SubagentActivity:
    """The latest activity of each running subagent, and the time when the subagent started."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = dict[str, float]()  # when each was first seen running
        self._writing = dict[str, str]()  # the last text of each that writes

    def add_news(self, news: SubagentDelta | ChildMoved) -> None:
        """Store the last text that a subagent writes. Its other activity deletes that text."""
        match news:
            case ChildMoved(node) | SubagentDelta(
                node, CallComing() | Waiting() | Progress()
            ):
                self._writing.pop(node, None)
            case SubagentDelta(node, TextCame(text) | ThinkingCame(text)):
                written = self._writing.get(node, "") + text
                # Twice as much as is shown, because blanks are joined.
                self._writing[node] = written[-2 * _TAIL_CHARS :]
            case _:
                pass

    def rows(self, screen: Screen, width: int, max_rows: int) -> list[Line]:
        """Return rows for the running subagents, `max_rows` at most; [] if none runs."""
        children = screen.view.children
        if not children.running:
            return []
        now = self._clock()
        progress = {moved.node: self._with_written_text(moved) for moved in screen.moved}
        for child in children.running:
            self._since.setdefault(child.name, now)
        seconds = {name: now - since for name, since in self._since.items()}
        return live_rows(children, progress, seconds, width, max_rows)

    def _with_written_text(self, progress: ChildMoved) -> ChildMoved:
        """Return the activity, with the newest text that the subagent is writing, if any."""
        text = " ".join(self._writing.get(progress.node, "").split())
        return replace(progress, label=f"… {text[-_TAIL_CHARS:]}") if text else progress


def _is_on_screen(block: MessageBlock, own_ids: Container[str]) -> bool:
    """Return whether the message was typed at this terminal, so that it is already visible."""
    return (block.key != "" and block.key in own_ids) or is_from_shell(block.sender)


def _is_reported_elsewhere(block: CallBlock, view: View) -> bool:
    """Whether the result of this call is already shown in the line about a subagent's end."""
    return block.stage == "done" and block.call.id in reported_calls(view.children)


def _running_call_names(open_: Sequence[Open], last: str, tool: FindTool) -> str:
    """Return the names of the running calls, without the call whose line was printed last.

    Calls that code made are not named. If there are many calls, only the first are named, and
    the others are counted.
    """
    running = list[ToolCall]()
    for block in open_:
        if not isinstance(block, CallBlock) or block.stage != "running":
            continue
        if not block.within and block.call.id != last:
            running.append(block.call)
    names = [
        cut(label(call, tool(call.name)), _NAME_CELLS)
        for call in running[:_MAX_NAMED_CALLS]
    ]
    hidden_count = len(running) - _MAX_NAMED_CALLS
    if hidden_count > 0:
        names.append(f"{hidden_count} more")
    return " · ".join(names)


def _waiting_messages_text(view: View) -> str:
    """Return a text that says how many messages wait, and what they wait for."""
    waiting = view.conversation.undelivered if view.turn.steps else ()
    times = [
        message.said.when for message in waiting if not is_from_shell(message.said.sender)
    ]
    soon, later = times.count("now"), times.count("next")
    parts = [f"{soon} for the next step"] if soon else []
    if later:
        parts.append(f"{later} after this turn")
    return " · ".join(parts)


def _retry_reason(status: Status) -> str:
    wait = f"; retrying in {duration(status.seconds)}" if status.seconds else ""
    return visible(status.reason) + wait
