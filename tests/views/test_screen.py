"""The screen as a value: the effect of each piece of news, and its cost."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import Raw
from msgspec.structs import replace

from refold.journal.events.child_events import ChildBorn, ChildEnded, Forked, NestedCallMade
from refold.journal.events.kinds import (
    Answered,
    Compacted,
    Delivered,
    Ended,
    Entry,
    Event,
    FilesRestored,
    Frame,
    Imported,
    Judged,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    PlanAnswered,
    Reserved,
    Rewound,
    Said,
    SessionResumed,
    SessionStarted,
    Settled,
    Started,
    Stopped,
    TurnEnded,
    TurnStarted,
)
from refold.journal.events.setting_events import (
    BudgetSet,
    ModelChosen,
    Renamed,
    StepLimitSet,
    Tagged,
)
from refold.journal.state.fold import fold
from refold.values.control import Final
from refold.values.growing import Growing
from refold.values.live import (
    CallComing,
    ChildMoved,
    Live,
    Progress,
    SubagentDelta,
    TextCame,
    ThinkingCame,
    Waiting,
)
from refold.values.messages import Message, Part, Text, Thinking, ToolCall
from refold.values.usage import Budget, Spent, Usage
from refold.views.screen.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    MessageBlock,
    NoticeBlock,
    StreamingBlock,
    ThinkingBlock,
    TurnEndBlock,
)
from refold.views.screen.history import recap
from refold.views.screen.screen import Screen, apply_frame, screen_at, screen_of
from refold.views.screen.status import Status
from refold.views.styled import plain_text

GO = (SessionStarted("/w"), Said("Go."), TurnStarted(2), Delivered((2,)), ModelAsked())
CALL = ToolCall("c1", "bash", Raw(b'{"command":"ls"}'))
OTHER = ToolCall("c2", "bash", Raw(b'{"command":"pwd"}'))


def answer(*parts: Part, usage: Usage | None = None) -> ModelAnswered:
    return ModelAnswered(
        Message("assistant", parts), usage or Usage(9, output=1), model="a/m"
    )


def apply_news(screen: Screen, *news: Event | Live) -> Screen:
    for item in news:
        seq = screen.view.seq
        if isinstance(
            item,
            TextCame
            | ThinkingCame
            | CallComing
            | Progress
            | Waiting
            | ChildMoved
            | SubagentDelta,
        ):
            screen = apply_frame(screen, Frame(seq, 1, item))
        else:
            entry = Entry(seq + 1, item, at=10.0 * (seq + 1))
            screen = apply_frame(screen, Frame(seq + 1, 0, entry))
    return screen


def start_screen(*news: Event | Live) -> Screen:
    return apply_news(Screen(), *GO, *news)


def lines(blocks: tuple[Block, ...]) -> list[str]:
    return [plain_text([block.line]) for block in blocks if isinstance(block, NoticeBlock)]


def test_a_streamed_response_grows_and_becomes_blocks_when_complete() -> None:
    coming = start_screen(
        ThinkingCame("H"), ThinkingCame("m"), TextCame("I "), TextCame("look.")
    )
    whole = apply_news(coming, answer(Thinking("Hm"), Text("I look."), CALL))

    assert coming.coming == (
        StreamingBlock(kind="thought", text=Growing("Hm")),
        StreamingBlock(kind="words", text=Growing("I look.")),
    )
    assert (coming.status, whole.coming) == (Status("", 50.0), ())
    assert whole.blocks[1:] == (
        ThinkingBlock(seq=6, at=60.0, text="Hm"),
        AnswerBlock(seq=6, at=60.0, text="I look.", model="a/m"),
        CallBlock(seq=6, at=60.0, call=CALL),
    )


def test_a_call_block_changes_from_asked_to_running_to_done() -> None:
    result = start_screen(answer(CALL), Judged("c1", "ask", reason="no rule"))
    screen = apply_news(result, Answered("c1", True))
    running = apply_news(
        screen, Started("c1"), Progress("c1", "a\n"), Progress("c1", "b\n")
    )
    done = apply_news(running, Ended("c1", "done", "a\nb\n"))

    assert [s.open[0] for s in (result, screen, running)] == [
        CallBlock(seq=6, at=60.0, call=CALL, stage="asked", reason="no rule"),
        CallBlock(seq=6, at=60.0, call=CALL, reason="no rule", answered="yes"),
        CallBlock(
            seq=6, at=60.0, call=CALL, stage="running", reason="no rule", answered="yes",
            began=90.0, tail="a\nb\n",
        ),
    ]  # fmt: skip
    assert [s.status.doing for s in (result, screen, running, done)] == [
        "", "", "running", "",
    ]  # fmt: skip
    assert done.open == ()
    assert done.done[-1] == CallBlock(
        seq=6, at=60.0, call=CALL, stage="done", reason="no rule", answered="yes",
        began=90.0, ended=100.0, text="a\nb\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [(Answered("c1", False, "later"), "no: later"), (Answered("c1", False), "no")],
)
def test_refused_call_keeps_the_answer_of_the_user(
    verdict: Answered, expected: str
) -> None:
    screen = start_screen(
        answer(CALL), Judged("c1", "ask"), verdict, Answered("c1", True),
        Ended("c1", "refused", "Refused."),
    )  # fmt: skip

    (block,) = [b for b in screen.done if isinstance(b, CallBlock)]
    assert (block.stage, block.answered) == ("refused", expected)


def test_calls_are_ordered_by_their_ends_with_running_calls_last() -> None:
    screen = start_screen(
        answer(CALL, OTHER), Started("c1"), Started("c2"), Ended("c2", "done", "/w"),
        ModelChosen("b/n"),
    )  # fmt: skip

    assert [b.call.id for b in screen.blocks if isinstance(b, CallBlock)] == ["c2", "c1"]
    assert lines(screen.blocks) == ["The model is now b/n."]
    assert screen.blocks[-1] == screen.open[0]
    assert screen.status.doing == "running"


def test_running_call_keeps_only_the_end_of_its_output() -> None:
    running = start_screen(answer(CALL), Started("c1"))
    for n in range(2_000):
        running = apply_news(running, Progress("c1", f"line {n}\n"))

    (block,) = running.open
    assert isinstance(block, CallBlock)
    assert len(block.tail) == 1_000
    assert block.tail.endswith("line 1998\nline 1999\n")


def test_a_nested_call_names_the_call_that_made_it_and_ends_with_it() -> None:
    call = ToolCall("c1.1", "read_file", Raw(b"{}"))
    lost = ToolCall("c1.2", "read_file", Raw(b"{}"))
    screen = start_screen(
        answer(CALL), Started("c1"), NestedCallMade(call, "c1"), Started("c1.1"),
        Ended("c1.1", "done", "x"), NestedCallMade(lost, "c1"), Ended("c1", "done", "y"),
    )  # fmt: skip

    assert [(b.call.id, b.within, b.stage) for b in screen.blocks if isinstance(b, CallBlock)] == [
        ("c1.1", "c1", "done"), ("c1", "", "done"), ("c1.2", "c1", "unknown"),
    ]  # fmt: skip


def test_a_final_answer_from_a_tool_is_shown_after_its_call() -> None:
    end = Ended("c1", "done", "Given.", control=Final("It is 7."))

    screen = start_screen(answer(CALL), Started("c1"), end)

    assert [type(block).__name__ for block in screen.done] == [
        "MessageBlock",
        "CallBlock",
        "AnswerBlock",
    ]
    assert screen.done[-1] == AnswerBlock(seq=8, at=80.0, text="It is 7.", model="a/m")


def test_queued_messages_are_shown_at_the_end_until_delivered() -> None:
    waiting = start_screen(Said("And then?", when="next"), answer(Text("One.")))
    later = apply_news(
        waiting,
        TurnEnded("answered"),
        TurnStarted(6),
        Delivered((6,)),
        ModelAsked(),
        answer(Text("Two.")),
    )

    assert waiting.blocks[-1] == MessageBlock(seq=6, at=60.0, words="And then?", later=True)
    assert [b.words if isinstance(b, MessageBlock) else type(b) for b in later.blocks] == [
        "Go.", AnswerBlock, TurnEndBlock, "And then?", AnswerBlock,
    ]  # fmt: skip


def test_stopping_a_streamed_response_keeps_the_text_received_so_far() -> None:
    stopped = start_screen(TextCame("One, two"), Stopped("enough"), TextCame(" thr"))
    partial = ModelAnswered(Message("assistant", (Text("One, two"),)), partial=True)
    over = apply_news(
        stopped, Said("Shorter."), partial, TurnEnded("interrupted", "enough")
    )

    assert stopped.coming == ()
    assert [type(block).__name__ for block in over.blocks] == [
        "MessageBlock", "AnswerBlock", "TurnEndBlock", "MessageBlock",
    ]  # fmt: skip
    assert over.blocks[1] == AnswerBlock(seq=8, at=80.0, text="One, two", partial=True)


def test_failed_response_keeps_its_partial_text() -> None:
    screen = start_screen(
        TextCame("So"), ModelFailed("gone", partial_text="So far", model="a/m")
    )

    assert screen.coming == ()
    assert screen.done[-1] == AnswerBlock(
        seq=6, at=60.0, text="So far", model="a/m", partial=True
    )


def test_text_parts_separated_by_signed_thinking_are_one_block() -> None:
    signed = Thinking("", "acme", Raw(b'"signed"'))
    cut = ModelAnswered(
        Message("assistant", (Text("So "), signed, Text("so."))), stop="length"
    )

    screen = start_screen(cut)

    assert screen.done[-1] == AnswerBlock(seq=6, at=60.0, text="So so.", partial=True)


def test_subagent_reports_and_messages_between_turns_are_not_shown_as_queued() -> None:
    report = start_screen(Said("Found it.", sender="child-1", when="next"))
    between = apply_news(report, TurnEnded("answered"), Said("Then?", when="next"))

    assert [b.words for b in between.blocks if isinstance(b, MessageBlock)] == [
        "Go.", "Found it.", "Then?",
    ]  # fmt: skip
    assert report.open == between.open == ()


def test_a_screen_opened_after_a_stop_shows_queued_messages_without_reports() -> None:
    stopped = start_screen(
        Stopped("enough"), Said("Shorter."), Said("Found it.", sender="child-1", when="next"),
    )  # fmt: skip

    assert [b.words for b in stopped.open if isinstance(b, MessageBlock)] == ["Shorter."]
    assert screen_at(stopped.view).open == (replace(stopped.open[0], at=0.0),)


def test_settled_background_call_leaves_the_status_unchanged() -> None:
    assert start_screen(Settled(1)).status.doing == "thinking"


@pytest.mark.parametrize(
    "end",
    [
        ModelAsked(), ModelFailed("gone"), Stopped("enough"), TurnEnded("failed"),
        Imported("s1"), answer(Text("Other.")),
    ],
)  # fmt: skip
def test_no_streamed_text_remains_after_a_response_ends(end: Event) -> None:
    assert start_screen(TextCame("So"), end).coming == ()


def test_the_status_shows_the_reason_and_number_of_each_retry() -> None:
    once = start_screen(Waiting(2.0, "busy"))
    twice = apply_news(once, Waiting(2.0, "busy"))
    thinks = apply_news(twice, ThinkingCame("Hm"))
    blank = apply_news(thinks, TextCame("\n"))
    on = apply_news(blank, TextCame("At last."))

    assert once.status == Status("waiting", 50.0, "busy", 2.0, tries=1)
    assert twice.status.tries == 2
    assert [s.status.doing for s in (thinks, blank, on)] == ["thinking", "thinking", ""]


def test_the_outcome_and_usage_of_a_turn_are_one_block() -> None:
    screen = start_screen(
        answer(Text("Yes."), usage=Usage(90, output=10)), TurnEnded("answered")
    )

    assert screen.done[-1] == TurnEndBlock(
        seq=7, at=70.0, outcome="answered", seconds=40.0,
        spent=Spent(Usage(90, output=10), 0.0, 1, 1), last=Usage(90, output=10), model="a/m",
    )  # fmt: skip


def test_time_without_a_process_is_not_counted_in_the_duration_of_a_turn() -> None:
    screen = start_screen(
        SessionResumed("2"), ModelAsked(), answer(Text("Yes.")), TurnEnded("answered")
    )

    over = screen.done[-1]
    assert isinstance(over, TurnEndBlock)
    assert over.seconds == 30.0


def test_a_rewind_is_reported_and_earlier_blocks_stay_on_the_screen() -> None:
    before = start_screen(answer(Text("Yes.")), TurnEnded("answered"), Said("More?"))
    back = apply_news(before, Rewound(8))
    nowhere = apply_news(back, Rewound(7_000))
    start = apply_news(back, Rewound(2))

    assert back.blocks[: len(before.blocks)] == before.blocks
    assert lines(start.blocks) == [
        "The conversation is back at event 8. Last message: Go.",
        "The conversation is back before its first message.",
    ]
    assert lines(nowhere.blocks)[-1] == (
        "The conversation is unchanged: there is no event 7000."
    )


def test_running_calls_are_closed_by_a_rewind() -> None:
    screen = start_screen(answer(CALL), Started("c1"), Rewound(2))

    assert screen.open == ()
    assert [b.stage for b in screen.done if isinstance(b, CallBlock)] == ["unknown"]


def test_a_call_still_open_when_the_next_response_arrives_is_shown_as_unknown() -> None:
    screen = start_screen(answer(CALL), Started("c1"), answer(Text("Well.")))

    assert screen.open == ()
    assert [b.stage for b in screen.done if isinstance(b, CallBlock)] == ["unknown"]


def test_a_rewind_removes_messages_from_the_queue() -> None:
    screen = start_screen(
        answer(Text("Yes.")), Said("Then?", when="next"), Rewound(2), TurnEnded("answered"),
    )  # fmt: skip

    assert screen.open == ()
    assert [b.words for b in screen.done if isinstance(b, MessageBlock)] == ["Go.", "Then?"]


def test_importing_a_session_closes_its_running_calls_and_streams() -> None:
    whole = start_screen(
        answer(CALL), Started("c1"), Said("Then?", when="next"), Imported("s1")
    )
    asking = start_screen(TextCame("So"), Imported("s1"))

    assert [type(block) for block in whole.open] == [
        MessageBlock
    ]  # no watcher has received it yet
    assert whole.status == Status()
    assert (asking.coming, asking.status) == ((), Status())
    assert lines(whole.blocks) == ["Imported from a file, where it is session s1."]


def test_events_outside_the_conversation_are_shown_as_one_line_each() -> None:
    born = ChildBorn("child-1", "c1", "explore", "Look\naround")
    screen = start_screen(
        Forked("s1", 4), FilesRestored(4, 5, 1), FilesRestored(4, 5, 2), PlanAnswered(1, True),
        born, ChildEnded("child-1", "failed", "failed", reason="gone"),
        Settled(1, failed="no\x1b[2J model"), Compacted("trim", dropped=1, size_before=9, size_after=2),
    )  # fmt: skip

    assert lines(screen.blocks) == [
        "Forked from session s1 at event 4. The original is unchanged.",
        "1 file was restored to event 4.",
        "2 files were restored to event 4.",
        "The plan was approved.",
        "child-1 (explore) begins: Look around",
        "child-1 (explore) has failed: gone · Look around · 10.0 s",
        "A background model call failed: no\\x1b[2J model",
        "compacted: 1 old message left out, without a summary, <1% of window",
    ]


def test_changes_of_session_settings_are_shown_as_one_line_each() -> None:
    screen = start_screen(
        Renamed("my\x1bwork"), Renamed(""), Tagged(("a", "b")), Tagged(()), BudgetSet(),
        BudgetSet(Budget(2, 300_000, 1, 90)), StepLimitSet(7), StepLimitSet(),
    )  # fmt: skip
    lent = apply_frame(screen, Frame(99, 0, Entry(99, BudgetSet(Budget(1)), by="parent")))

    assert lines(lent.blocks) == [
        "The session is now called my\\x1bwork.",
        "The session no longer has a name.",
        "Its tags are now #a #b.",
        "It no longer has tags.",
        "The budget of a turn is now whatever it needs.",
        "The budget of a turn is now $2.00, 300.0k tokens, 1 model calls, 1 min 30 s.",
        "A turn may now have 7 model responses.",
        "A turn may now have as many model responses as limits.steps.",
    ]


def test_running_subagents_are_listed_until_they_end() -> None:
    def child_moved(node: str) -> ChildMoved:
        return ChildMoved(node, "explore", "", 1, 10, None, "read")

    working = start_screen(
        child_moved("child-1"),
        child_moved("child-1/child-1"),
        child_moved("child-2"),
        child_moved("child-1"),
    )
    one_less = apply_news(working, ChildEnded("child-1", "answered", "done"))

    assert [m.node for m in working.moved] == ["child-1/child-1", "child-2", "child-1"]
    assert [m.node for m in one_less.moved] == ["child-2"]
    assert apply_news(working, SubagentDelta("child-1", TextCame("x"))) == working
    assert apply_news(working, TurnEnded("answered")).moved == ()


def test_a_background_model_call_is_shown_in_the_status_until_it_ends() -> None:
    asking = start_screen(answer(CALL), Started("c1"), Reserved("leaf", "a/m"))
    done = apply_news(asking, Settled(8))

    assert (asking.status.doing, done.status.doing) == ("requesting a leaf", "running")


def test_a_screen_opened_during_a_turn_shows_open_calls_and_queued_messages() -> None:
    whole = start_screen(
        answer(CALL, OTHER), Judged("c1", "ask", reason="no rule"), Started("c2"),
        Said("Then?", when="next"),
    )  # fmt: skip

    screen = screen_at(whole.view)

    assert len(screen.done) == 0
    assert [(b.call, b.stage, b.reason) for b in screen.open if isinstance(b, CallBlock)] == [
        (CALL, "asked", "no rule"), (OTHER, "running", ""),
    ]  # fmt: skip
    assert [b.words for b in screen.open if isinstance(b, MessageBlock)] == ["Then?"]
    assert screen.status.doing == "running"


def count_lines(function: Callable[[], object]) -> int:
    """Lines of our code that `function` runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if "/refold/" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def long_session(turns: int) -> list[Entry]:
    events: list[Event] = [SessionStarted("/w")]
    for _ in range(turns):
        count = len(events) + 1
        events += [
            Said("Go on."), TurnStarted(count), Delivered((count,)), ModelAsked(), answer(CALL),
            Started("c1"), Ended("c1", "done", "x"), ModelAsked(), answer(Text("Done.")),
            TurnEnded("answered"),
        ]  # fmt: skip
    return [Entry(seq, event) for seq, event in enumerate(events, start=1)]


def test_opening_a_long_session_runs_about_as_many_lines_of_code_as_a_short_one() -> None:
    short, long = (fold(long_session(turns)) for turns in (20, 600))

    numbers = [
        count_lines(lambda v=view: (screen_at(v), recap(v, 80))) for view in (short, long)
    ]

    assert numbers[1] <= numbers[0] + 100  # a few steps of a binary search


def test_updating_the_screen_runs_about_as_many_lines_of_code_in_long_sessions_as_in_short() -> (
    None
):
    news = (*GO[1:], TextCame("one"), TextCame("two"), answer(Text("onetwo")))
    short, long = (screen_of(long_session(turns)) for turns in (20, 300))
    for n in range(3_000):
        long = apply_news(long, TextCame(f"{n} "))

    few, many = (
        count_lines(lambda s=screen: apply_news(s, *news)) for screen in (short, long)
    )

    assert many <= few + 20


@given(some.lists(some.text("aé文\n", max_size=4)), some.integers(0, 20))
def test_a_growing_text_equals_its_joined_pieces(pieces: list[str], seen: int) -> None:
    grown = Growing()
    for piece in pieces:
        grown = grown.plus(piece)

    assert (str(grown), len(grown)) == ("".join(pieces), len("".join(pieces)))
    assert grown.after(seen) == "".join(pieces)[seen:]
    assert grown == Growing("".join(pieces))
    assert (grown.plus("x"), grown.plus("y")) != (grown, grown)
