"""What the line terminal prints of a screen: each new part, and nothing twice."""

import io

import msgspec
from msgspec import Raw

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.journal.events.child_events import NestedCallMade
from refold.journal.events.kinds import (
    Answered,
    Delivered,
    Ended,
    Entry,
    Event,
    Frame,
    Judged,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Said,
    SessionStarted,
    Started,
    Stopped,
    TurnEnded,
    TurnStarted,
)
from refold.journal.events.setting_events import ModelChosen
from refold.journal.state.conversation import SHELL_SENDER
from refold.journal.state.fold import fold
from refold.terminal.screen.streamed_text import split_text
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.tools.builtin import builtin
from refold.values.control import Final, PlanReady
from refold.values.display import Output
from refold.values.live import Live, Progress, TextCame, ThinkingCame, Waiting
from refold.values.messages import Message, Part, Text, Thinking, ToolCall
from refold.views.styled import plain_text

GO = (
    SessionStarted("/w"),
    Said("Go.", client_key="k1"),
    TurnStarted(2),
    Delivered((2,)),
    ModelAsked(),
)

TOOLS = {tool.name: tool for tool in builtin()}
LS = ToolCall("c1", "bash", Raw(b'{"command":"ls"}'))
PWD = ToolCall("c2", "bash", Raw(b'{"command":"pwd"}'))


def answer(*parts: Part) -> ModelAnswered:
    return ModelAnswered(Message("assistant", parts))


class TranscriptTerminal:
    """A terminal that begins where `before` ends. It receives frames and shows its rows."""

    def __init__(self, *before: Event, moves: bool = False) -> None:
        self._out = io.StringIO()
        self._view = fold(Entry(n, event) for n, event in enumerate(before, start=1))
        look = TerminalCapabilities(moves=moves, text_width=lambda: 80)
        self.showing = TranscriptPrinter(Printer(self._out, look), lambda: 0.0, TOOLS.get)
        self.showing.own.add("k1")
        self.showing.begin(self._view)
        self._seq, self._n = self._view.seq, 0

    def hear(self, *news: Event | Live) -> list[str]:
        """Return the rows that are printed of this, but for empty ones."""
        return [row for row in self.print_news(*news).split("\n") if row]

    def print_news(self, *news: Event | Live) -> str:
        before = len(self._out.getvalue())
        for item in news:
            if isinstance(item, TextCame | ThinkingCame | Progress | Waiting):
                self._n += 1
                self.showing.show(Frame(self._seq, self._n, item))
            else:
                self._seq, self._n = self._seq + 1, 0
                self.showing.show(Frame(self._seq, 0, Entry(self._seq, item)))  # type: ignore[arg-type]
        return self._out.getvalue()[before:]


def test_a_streamed_response_is_printed_once_including_text_that_was_not_streamed() -> None:
    terminal = TranscriptTerminal()
    terminal.hear(*GO)

    came = terminal.hear(TextCame("One.\n\n"), TextCame("Two.\n\nThr"))
    whole = terminal.hear(answer(Text("One.\n\nTwo.\n\nThree.")))

    assert came[:2] == ["One.", "Two."]
    assert "".join(came + whole) == "One.Two.Three."


def test_thinking_is_printed_before_the_text_that_it_preceded() -> None:
    terminal = TranscriptTerminal()

    rows = terminal.hear(
        *GO, ThinkingCame("Hm.\n"), TextCame("First."), ThinkingCame("And"),
        ThinkingCame(" so."), TextCame("Second."),
        answer(Thinking("Hm.\n"), Text("First."), Thinking("And so."), Text("Second.")),
    )  # fmt: skip

    assert rows == ["∴ Hm.", "First.", "∴ And so.", "Second."]


def test_a_single_running_call_is_printed_before_its_result() -> None:
    terminal = TranscriptTerminal(*GO)

    texts = terminal.hear(answer(LS), Started("c1"))
    status = plain_text([terminal.showing.status()])
    ended = terminal.hear(Ended("c1", "done", "a"))

    assert (texts, ended) == (["● bash ls"], ["  └ a"])
    assert "bash" not in status


def test_parallel_calls_are_in_the_status_line_and_then_printed_with_results() -> None:
    terminal = TranscriptTerminal(*GO)

    texts = terminal.hear(answer(LS, PWD), Started("c1"), Started("c2"))
    status = plain_text([terminal.showing.status()])
    ended = terminal.hear(Ended("c2", "done", "/w"), Ended("c1", "done", "a"))

    assert texts == []
    assert status.startswith("⠋ running 0.0 s  bash ls · bash pwd  ")
    assert ended == ["● bash pwd", "  └ /w", "● bash ls", "  └ a"]


def test_notices_are_printed_after_one_empty_line_and_without_gaps_between() -> None:
    terminal = TranscriptTerminal(*GO)

    text = terminal.print_news(TextCame("Words."), answer(Text("Words.")))
    text += terminal.print_news(ModelChosen("a/b"), ModelChosen("a/c"))

    assert text.endswith("Words.\n\nThe model is now a/b.\nThe model is now a/c.\n")


def test_parallel_read_only_calls_are_printed_with_results_and_without_gaps() -> None:
    looks = [ToolCall(f"c{n}", "read_file", Raw(b'{"path":"a"}')) for n in (1, 2)]
    terminal = TranscriptTerminal(*GO)

    texts = terminal.hear(answer(*looks), Started("c1"), Started("c2"))
    ended = terminal.hear(Ended("c1", "done", "x"), Ended("c2", "done", "y"))

    assert texts == []
    assert ended == ["● read_file a", "  └ x", "● read_file a", "  └ y"]


def test_an_empty_line_follows_long_results_and_not_short_ones() -> None:
    calls = [ToolCall(f"c{n}", "read_file", Raw(b'{"path":"a"}')) for n in (1, 2, 3)]
    terminal = TranscriptTerminal(*GO, answer(*calls))
    output = Output("x", "one\ntwo", 0)

    out = terminal.print_news(
        Ended("c1", "done", "x"), Ended("c2", "done", "", (output,)), Ended("c3", "done", "y"),
        answer(Text("Well.")),
    )  # fmt: skip

    assert out == (
        "● read_file a\n  └ x\n● read_file a\n  └ one\n    two\n\n● read_file a\n  └ y\n\nWell.\n"
    )


def test_a_refusal_typed_in_this_terminal_is_not_printed_again() -> None:
    terminal = TranscriptTerminal(*GO, answer(LS), Judged("c1", "ask"))
    terminal.showing.note_question("c1")

    rows = terminal.hear(
        Answered("c1", False, "later"), Ended("c1", "refused", "Refused: later")
    )

    assert rows == []


def test_an_approval_typed_in_this_terminal_is_not_printed_again() -> None:
    terminal = TranscriptTerminal(
        *GO, answer(LS, PWD), Judged("c1", "ask", reason="no rule"), Started("c2")
    )
    terminal.showing.note_question("c1")

    meanwhile = plain_text([terminal.showing.status()])
    rows = terminal.hear(Answered("c1", True))
    after = plain_text([terminal.showing.status()])
    rows += terminal.hear(Started("c1"), Ended("c1", "done", "a"))

    assert (meanwhile, rows) == ("", ["  └ a"])
    assert after.startswith("⠋ running 0.0 s")


def test_a_refusal_by_rules_prints_its_reason_and_a_plan_is_not_printed() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(
        answer(LS, PWD), Judged("c1", "deny", reason="rm is grave"),
        Ended("c1", "refused", "Refused: words for the model"), Started("c2"),
        Ended("c2", "done", "Made.", control=PlanReady("T", "1. x")),
    )  # fmt: skip

    assert rows == ["● bash ls", "  └ refused: rm is grave", "● bash pwd"]


def test_a_final_answer_from_a_tool_is_printed_like_a_response() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(
        TextCame("I end."), answer(Text("I end."), LS), Started("c1"),
        Ended("c1", "done", "Given.", control=Final("I end.")), TurnEnded("final"),
    )  # fmt: skip

    assert rows == ["I end.", "● bash ls", "  └ Given.", "I end.", "0.0 s"]


def test_a_queued_message_is_printed_when_queued_and_when_delivered() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(
        Said("And then?", when="next"), answer(Text("One.")), TurnEnded("answered"),
        TurnStarted(6), Delivered((6,)), ModelAsked(), answer(Text("Two.")),
    )  # fmt: skip

    assert rows == ["after this turn: And then?", "One.", "0.0 s", "› And then?", "Two."]


def test_a_message_that_redirects_a_turn_is_printed_after_the_turn_ends() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(
        TextCame("One, tw"), Stopped("interrupted"), Said("Shorter.", when="next"),
        answer(Text("One, tw")), TurnEnded("interrupted"), TurnStarted(7), Delivered((7,)),
    )  # fmt: skip

    assert rows == ["One, tw", "stopped", "0.0 s", "› Shorter."]


def test_a_queued_message_sent_with_a_redirect_is_not_reported_as_unsent() -> None:
    later, instead = Said("Later.", when="next"), Said("Shorter.", when="next")
    stopped = TranscriptTerminal(*GO)
    redirected = TranscriptTerminal(*GO)

    waits = stopped.hear(later, Stopped("interrupted"), TurnEnded("interrupted"))
    goes_on = redirected.hear(
        later, Stopped("interrupted"), instead, TurnEnded("interrupted")
    )

    assert waits[-1] == "Not sent yet: Later. Your next message or Enter sends it."
    assert goes_on == ["after this turn: Later.", "stopped", "0.0 s"]


def test_a_message_typed_at_this_prompt_is_not_printed_again() -> None:
    assert TranscriptTerminal().hear(*GO) == []
    assert TranscriptTerminal().hear(GO[0], Said("Go.")) == ["› Go."]


def test_a_series_of_retries_prints_one_line_for_each_reason() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(
        Waiting(2.0, "busy"), Waiting(4.0, "busy"), Waiting(0.0, "gone \x1b")
    )

    assert rows == ["busy; retrying in 2.0 s", "gone \\x1b"]
    assert plain_text([terminal.showing.status()]).startswith("⠋ waiting 0.0 s")


def test_the_next_request_prints_the_reason_of_its_retries_again() -> None:
    terminal = TranscriptTerminal(*GO)

    terminal.hear(Waiting(2.0, "busy"), answer(Text("Yes.")))
    rows = terminal.hear(ModelAsked(), Waiting(2.0, "busy"))

    assert rows[-1] == "busy; retrying in 2.0 s"


def test_the_status_line_counts_down_to_the_next_retry() -> None:
    terminal = TranscriptTerminal(*GO)

    terminal.hear(Waiting(8.0, "busy"))
    first = plain_text([terminal.showing.status()])
    terminal.hear(Waiting(16.0, "busy"))
    second = plain_text([terminal.showing.status()])

    assert ("retrying in 8 s" in first, "retrying in 16 s" in second) == (True, True)


def test_the_status_line_counts_attempts_and_names_the_reason() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(Waiting(21.0, "busy", 4, 10))

    assert rows == ["busy; retrying in 21.0 s"]  # no line can be erased here
    status = plain_text([terminal.showing.status()])
    assert "attempt 4 of 10, next in 21 s, Esc stops" in status
    assert status.endswith("busy")


def test_a_dropped_response_is_marked_below_its_text() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(
        TextCame("I look"),
        ModelFailed("busy", "Overloaded", "I look first.", dropped=True),
        ModelAsked(),
        Waiting(4.0, "busy", 2, 10),
        answer(Text("Yes.")),
    )

    mark = "dropped, the model is asked again: busy"
    assert rows == ["I look first.", mark, "busy; retrying in 4.0 s", "Yes."]


def test_a_notice_within_streamed_text_has_its_own_line_and_the_text_continues() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(
        TextCame("One, "), ModelChosen("a/b"), TextCame("two."), answer(Text("One, two."))
    )

    assert [row.strip() for row in rows] == ["One,", "The model is now a/b.", "two."]


def test_a_call_already_running_when_the_transcript_begins_is_named_at_its_result() -> None:
    terminal = TranscriptTerminal(*GO, answer(LS), Started("c1"))

    rows = terminal.hear(
        Progress("c1", "10%\r20%"), Ended("c1", "done", "a"), TurnEnded("answered")
    )

    assert rows == ["● bash ls", "  └ a", "0.0 s"]


def test_the_first_nested_calls_of_code_are_printed_and_the_rest_counted() -> None:
    run = ToolCall("c1", "python", Raw(b'{"code":"go()"}'))
    terminal = TranscriptTerminal(*GO, answer(run), Started("c1"))
    events: list[Event] = []
    for n in range(50):
        call = ToolCall(f"c1.{n}", "read_file", Raw(f'{{"path":"f{n}"}}'.encode()))
        events += [
            NestedCallMade(call, "c1"),
            Started(call.id),
            Ended(call.id, "done", f"read {n}"),
        ]

    rows = terminal.hear(*events, Ended("c1", "done", "so"))

    assert rows[:2] == ["● read_file f0", "  └ read 0"]
    assert rows[-5:] == [
        "● read_file f9", "  └ read 9", "● python go()", "  └ … 40 more calls by its code …",
        "    so",
    ]  # fmt: skip


def test_no_line_of_a_long_response_is_printed_twice_for_any_chunk_size() -> None:
    text = "".join(f"Line {n} says something.\n\n" for n in range(80))
    for size in (1, 3, 17, 4_000):
        terminal = TranscriptTerminal(*GO, moves=True)
        pieces = [
            TextCame(text[start : start + size]) for start in range(0, len(text), size)
        ]

        rows = terminal.hear(*pieces, answer(Text(text)))

        assert rows == [f"Line {n} says something." for n in range(80)]


def test_a_long_text_that_comes_as_a_whole_is_split_and_printed_the_same() -> None:
    text = "".join(f"Line {n} says *something*.\n\n```\n{n}\n```\n\n" for n in range(800))
    whole, by_parts = (TranscriptTerminal(*GO, moves=True) for _ in range(2))

    frames = split_text(Frame(3, 1, TextCame(text)))
    parts = [frame.item for frame in frames if isinstance(frame.item, TextCame)]

    assert len(parts) > 3
    assert by_parts.print_news(*parts, answer(Text(text))) == whole.print_news(
        TextCame(text), answer(Text(text))
    )
    short = Frame(3, 2, TextCame("short"))
    assert list(split_text(short)) == [short]


def test_the_status_line_counts_pending_messages() -> None:
    terminal = TranscriptTerminal(*GO, answer(LS), Started("c1"))

    terminal.hear(Said("now"), Said("later", when="next"), Progress("c1", "one\ntwo\n"))

    assert plain_text([terminal.showing.status()]) == (
        "⠋ running 0.0 s  bash ls  1 for the next step · 1 after this turn  two"
    )


def test_text_missing_from_the_stream_is_printed_after_the_streamed_text() -> None:
    blank_first = TranscriptTerminal(*GO)
    in_two = TranscriptTerminal(*GO)

    one = blank_first.print_news(
        TextCame(" "), ThinkingCame("Hm"), TextCame("No"),
        answer(Thinking("Hm"), Text("No way.")),
    )  # fmt: skip
    two = in_two.hear(
        TextCame("One."), ThinkingCame("Hm"), TextCame("Two"),
        answer(Text("One."), Thinking("Hm"), Text("Two more.")),
    )  # fmt: skip

    assert one.splitlines()[-1] == "No way."
    assert two == ["One.", "∴ Hm", "Two more."]


def test_text_of_a_failed_response_is_printed_in_full_by_its_retry() -> None:
    terminal = TranscriptTerminal(*GO)
    terminal.hear(ThinkingCame("Hm"), TextCame("So"), ModelFailed("gone"))

    rows = terminal.hear(ModelAsked(), answer(Thinking("Hm, well."), Text("So what.")))

    assert rows == ["∴ Hm, well.", "So what."]


def test_blank_lines_around_a_response_are_reduced_to_one_line_break() -> None:
    near, far = TranscriptTerminal(*GO), TranscriptTerminal(*GO)

    one = near.print_news(TextCame("Yes.\r"), answer(Text("Yes.\r")))
    other = far.print_news(TextCame("\n\n\nYes.\r"), answer(Text("\n\n\nYes.\r")))

    assert one == other == "Yes.\\r\n"


def test_a_shell_command_of_the_user_is_not_printed_again() -> None:
    terminal = TranscriptTerminal(*GO)

    rows = terminal.hear(
        answer(Text("Yes.")), TurnEnded("answered"), Said("$ ls", SHELL_SENDER)
    )

    assert "$ ls" not in "".join(rows)


def test_a_line_split_by_a_message_or_notice_is_printed_complete_after_it() -> None:
    terminal = TranscriptTerminal(*GO, moves=True)

    texts = terminal.hear(TextCame("First.\n\n```py\n# one\ntw"))
    between = terminal.hear(Said("Hurry."))
    ended = terminal.hear(
        TextCame("o()\n```\n\nSo lo"), ModelChosen("b/n"), TextCame("ng.")
    )
    whole = terminal.hear(answer(Text("First.\n\n```py\n# one\ntwo()\n```\n\nSo long.")))

    assert texts == ["First.", "```py", "# one"]
    assert between == ["› Hurry."]
    assert ended == ["two()", "```", "The model is now b/n."]
    assert whole == ["So long."]


def test_one_empty_line_is_printed_before_continued_text() -> None:
    terminal = TranscriptTerminal(*GO, moves=True)

    text = terminal.print_news(TextCame("One"), Said("Hurry."), TextCame(" word.\n\nMore."))
    terminal.print_news(ModelChosen("b/n"))
    rest = terminal.print_news(answer(Text("One word.\n\nMore.")))

    assert text == "› Hurry.\n\nOne word.\n"
    assert rest == "\nMore.\n"


def test_a_long_message_that_was_not_typed_here_is_folded() -> None:
    message = "\n".join(f"pasted {n}" for n in range(500))

    rows = TranscriptTerminal(SessionStarted("/w")).hear(
        Said(message), TurnStarted(2), Delivered((2,))
    )

    assert rows[:5] == [
        "› pasted 0", "pasted 1", "pasted 2", "pasted 3",
        "… 489 more lines; /expand message shows all …",
    ]  # fmt: skip
    assert rows[5:] == [f"pasted {n}" for n in range(493, 500)]


def test_a_command_of_several_lines_keeps_them_in_its_call() -> None:
    call = ToolCall(
        "c1", "bash", Raw(msgspec.json.encode({"command": "cat <<E\na\n  b\nE"}))
    )

    rows = TranscriptTerminal(*GO, answer(call)).hear(Started("c1"))

    assert rows == ["● bash cat <<E", "    a", "      b", "    E"]


def test_thinking_that_was_cut_names_the_command_that_shows_it() -> None:
    rows = TranscriptTerminal(*GO).hear(answer(Thinking("I consider " * 20), Text("Done.")))

    assert rows[0].endswith("… /expand thinking")
    assert len(rows[0]) <= 80
