"""How keys and news change the state of the full screen, and which commands they cause."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec import Raw
from msgspec.structs import replace

from refold.client.protocol import Interrupt, MoveToBackground, StopBackground, StopChild
from refold.journal.events.child_events import (
    BackgroundStarted,
    ChildAsked,
    ChildBorn,
)
from refold.journal.events.kinds import Ended, Frame, ModelAsked, Said, Stopped, TurnEnded
from refold.tui.composer import Composer, insert
from refold.tui.messages import (
    Answer,
    Asked,
    AskedToPick,
    BoardRead,
    Command,
    Complete,
    Copy,
    CycleMode,
    DraftLeft,
    EditQueued,
    Facts,
    FactsChanged,
    FindMatches,
    Follow,
    Key,
    LoadPalette,
    Matched,
    Message,
    Mouse,
    News,
    OutputLoaded,
    OutputsRead,
    PaletteLoaded,
    Paste,
    Picked,
    Quit,
    Remember,
    Remembered,
    Repaint,
    Resized,
    RowsPrinted,
    RunCommand,
    Selected,
    Send,
    Submit,
    Suspend,
    Tick,
    TranscriptLoaded,
    Typed,
    Unqueued,
    WakeAfter,
    Watch,
    Withdrawn,
    Woken,
)
from refold.tui.model import Dialog, Model
from refold.tui.update import update
from refold.tui.view import view
from refold.values.control import BoardTask
from refold.values.display import Output
from refold.values.live import ChildMoved, TextCame
from refold.values.messages import ToolCall
from refold.views.picker import Picker, PickerItem
from refold.views.question_keys import Choice, Menu
from refold.views.screen.blocks import MessageBlock
from refold.views.screen.blocks import NoticeBlock as Notice
from refold.views.screen.transcript import transcript
from refold.views.styled import line, plain_text
from tests.tui.sessions import ENDS, WORDS, Story, model_of, stories

QUESTION = Asked(7, (line("Edit a.py?"),), line("y once · n no"), keys="yn", at=100.0)


def update_all(model: Model, *messages: Message) -> tuple[Model, list[Command]]:
    done = list[Command]()
    for message in messages:
        model, commands = update(model, message)
        done += commands
    return model, done


def idle_model() -> Model:
    story = Story()
    story.turn("Go.").tell(
        *story.answer_events("Here is `x`:\n\n```\ncode\n```"), TurnEnded("answered")
    )
    return model_of(story)


def busy_model() -> Model:
    return model_of(Story().turn("Go."))


def text(model: Model) -> str:
    return plain_text(view(model).rows)


def test_enter_sends_the_input_and_keeps_it_in_the_history() -> None:
    model, done = update_all(idle_model(), Typed("hello"), Key("enter"))

    assert done == [Remember("hello"), Submit("hello", "now")]
    assert model.composer.field.text == ""
    assert update_all(model, Key("up"))[0].composer.field.text == "hello"


def test_alt_enter_is_a_new_line_at_the_prompt_and_queues_the_message_during_a_turn() -> (
    None
):
    assert (
        update_all(idle_model(), Typed("a"), Key("alt+enter"))[0].composer.field.text
        == "a\n"
    )
    assert update_all(busy_model(), Typed("a"), Key("alt+enter"))[1] == [
        Remember("a"), Submit("a", "next"),
    ]  # fmt: skip


def test_ctrl_enter_queues_the_message_and_shift_enter_is_a_new_line() -> None:
    for model in (idle_model(), busy_model()):
        assert update_all(model, Typed("a"), Key("ctrl+enter"))[1] == [
            Remember("a"), Submit("a", "next"),
        ]  # fmt: skip
        typed, done = update_all(model, Typed("a"), Key("shift+enter"), Typed("b"))
        assert (typed.composer.field.text, done) == ("a\nb", [])


def test_shift_enter_is_a_new_line_in_a_text_question_that_accepts_several_lines() -> None:
    question = Asked(7, (), line("say › "), many=True)

    model, done = update_all(
        idle_model(), question, Typed("a"), Key("shift+enter"), Typed("b"), Key("enter")
    )

    assert (model.overlay, done) == (None, [Answer(7, "a\nb")])


@pytest.mark.parametrize(("many", "answer"), [(False, "a\\"), (True, "a\nb")])
def test_enter_after_a_backslash_is_a_line_break_only_in_an_answer_of_several_lines(
    many: bool, answer: str
) -> None:
    question = Asked(7, (), line("say › "), many=many)
    presses = [Typed("a\\"), Key("enter"), *((Typed("b"), Key("enter")) if many else ())]

    model, done = update_all(idle_model(), question, *presses)

    assert (model.overlay, done) == (None, [Answer(7, answer)])


def test_escape_offers_to_rewind_only_with_an_empty_input() -> None:
    with_text, empty = (
        update_all(idle_model(), *typed, Key("esc"))[0] for typed in ((Typed("a"),), ())
    )

    assert (with_text.hint, empty.hint) == ("", "Esc again: rewind.")


def test_up_key_with_empty_input_edits_the_newest_queued_message() -> None:
    story = Story().turn("Go.")
    story.tell(
        Said("paint it", when="next"), Said("sell {it}", when="next", typed="/sell it")
    )
    model = replace(model_of(story), composer=Composer(history=("earlier",)))
    newest = model.screen.view.message_queue[-1].seq

    assert update_all(model, Key("up"))[1] == [EditQueued(newest, "/sell it")]
    assert update_all(model, Typed("x"), Key("up"))[1] == []
    assert update_all(busy_model(), Key("up"))[1] == []
    assert "after this turn: sell it · ↑ edits it" in text(
        model_of(Story().turn("Go.").tell(Said("sell it", when="next")))
    )


def test_a_withdrawn_message_is_inserted_before_the_text_typed_since() -> None:
    assert update_all(busy_model(), Unqueued("sell it"))[0].composer.field.text == "sell it"
    assert update_all(busy_model(), Typed("and"), Unqueued("sell it"))[
        0
    ].composer.field.text == ("sell it\nand")


def test_esc_stops_the_turn_and_pressed_twice_when_idle_opens_rewind() -> None:
    assert update_all(busy_model(), Key("esc"))[1] == [Send(Interrupt())]
    assert update_all(idle_model(), Key("esc", 50.0), Key("esc", 50.5))[1] == [
        RunCommand("/rewind")
    ]
    assert update_all(idle_model(), Key("esc", 50.0), Key("esc", 55.0))[1] == []


@pytest.mark.parametrize("key", ["esc", "ctrl+c"])
def test_a_stop_keeps_the_draft(key: str) -> None:
    stopped, commands = update_all(busy_model(), Typed("draft"), Key(key, 50.0))

    assert commands == [Send(Interrupt())]
    assert stopped.composer.field.text == "draft"


@pytest.mark.parametrize(
    ("answer", "typed", "draft"),
    [([], "", "go"), ([], "other", "other"), (["Here is"], "", "")],
    ids=["unanswered", "draft", "answered"],
)
def test_a_stop_before_the_answer_restores_the_message_to_an_empty_input(
    answer: list[str], typed: str, draft: str
) -> None:
    story = Story()
    model, _ = update_all(model_of(story), Typed("go", 50.0), Key("enter", 50.0))
    story.turn("go")
    for words in answer:
        story.tell(*story.answer_events(words))
    story.tell(Stopped("interrupted"), TurnEnded("interrupted"))
    working = replace(model, composer=insert(model.composer, typed))

    stopped, _ = update_all(working, *(News((frame,)) for frame in story.frames[1:]))

    assert stopped.composer.field.text == draft


@pytest.mark.parametrize("key", ["esc", "ctrl+c"])
def test_a_stop_key_pressed_before_the_turn_begins_interrupts_it_at_its_start(
    key: str,
) -> None:
    story = Story()
    result, _ = update_all(model_of(story), Typed("go", 50.0), Key("enter", 50.0))
    pressed, commands = update_all(result, Key(key, 50.1))
    assert commands == []

    model, commands = update_all(pressed, News(tuple(story.turn("go").frames[1:])))
    assert commands == [Send(Interrupt())]
    assert not model.stops_next


def test_ctrl_c_stops_the_turn_or_clears_the_input_and_pressed_twice_leaves() -> None:
    emptied, done = update_all(idle_model(), Typed("draft"), Key("ctrl+c", 50.0))

    assert (emptied.composer.field.text, done) == ("", [])
    assert update_all(emptied, Key("up"))[0].composer.field.text == "draft"
    assert update_all(idle_model(), Key("ctrl+c", 50.0), Key("ctrl+c", 51.0))[1] == [Quit()]
    assert update_all(idle_model(), Key("ctrl+c", 50.0), Key("ctrl+c", 59.0))[1] == []
    assert update_all(busy_model(), Key("ctrl+c", 50.0))[1] == [Send(Interrupt())]


def test_ctrl_d_leaves_only_where_nothing_is_typed() -> None:
    assert update_all(idle_model(), Key("ctrl+d"))[1] == [Quit()]
    assert update_all(idle_model(), Typed("x"), Key("ctrl+d"))[1] == []


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("ctrl+p", LoadPalette()),
        ("shift+tab", CycleMode()),
        ("ctrl+z", Suspend()),
        ("ctrl+l", Repaint()),
    ],
)
def test_each_runtime_key_produces_its_command(key: str, wanted: Command) -> None:
    assert update_all(idle_model(), Key(key))[1] == [wanted]


def test_a_question_receives_the_keys_and_restores_the_draft_after_its_answer() -> None:
    result, _ = update_all(idle_model(), Typed("draft"), replace(QUESTION, at=900.0))

    model, done = update_all(result, Typed("y", 905.0))

    assert "Edit a.py?" in text(result)
    assert done == [Answer(7, "y")]
    assert (model.overlay, model.composer.field.text) == (None, "draft")
    assert update_all(result, Key("esc"))[1] == [Answer(7, key="esc")]
    assert update_all(result, Key("shift+tab"))[1] == [Answer(7, key="shift+tab")]


def test_typing_begun_before_a_question_appeared_does_not_answer_it() -> None:
    typing, _ = update_all(busy_model(), Typed("ma", 99.8), QUESTION)

    early, done = update_all(typing, Typed("y", 100.1), Typed("y", 100.7))

    assert done == []
    assert "That key came while you were typing" in text(early)
    assert update_all(early, Typed("y", 101.5))[1] == [Answer(7, "y")]


def test_questions_are_shown_one_by_one_and_withdrawn_ones_disappear() -> None:
    both, _ = update_all(idle_model(), QUESTION, replace(QUESTION, number=8))

    assert isinstance(both.overlay, Dialog)
    second, _ = update_all(both, Withdrawn(7))
    assert isinstance(second.overlay, Dialog)
    assert second.overlay.asked.number == 8
    assert update_all(both, Withdrawn(8), Withdrawn(7))[0].overlay is None


def test_a_question_for_text_is_answered_with_enter() -> None:
    model, _ = update_all(idle_model(), Asked(3, (), line("why not? "), text="be"))

    _, done = update_all(model, Typed("cause"), Key("enter"))

    assert done == [Answer(3, "because")]


def test_a_list_is_filtered_by_typing_and_an_item_is_chosen() -> None:
    items = tuple(
        PickerItem(n, lambda room, n=n: line(n), n) for n in ("/help", "/cost", "@a.py ")
    )
    model, _ = update_all(idle_model(), PaletteLoaded(Picker("Find", items)))

    assert update_all(model, Typed("cost"), Key("enter"))[1] == [RunCommand("/cost")]
    assert update_all(model, Key("esc"))[0].overlay is None
    inserted, done = update_all(model, Typed("a.py"), Key("enter"))
    assert (inserted.composer.field.text, done) == ("@a.py ", [])
    waited, _ = update_all(idle_model(), AskedToPick(4, Picker("Which?", items)))
    assert update_all(waited, Key("down"), Key("enter"))[1] == [
        Selected(4, "/cost"),
        Picked(4, "/cost"),
    ]
    assert update_all(waited, Key("esc"))[1] == [Picked(4, "")]


def test_a_list_opened_by_a_command_requests_matches_for_the_typed_text() -> None:
    items = tuple(PickerItem(n, lambda room, n=n: line(n), n) for n in ("one", "two"))
    waited, _ = update_all(idle_model(), AskedToPick(4, Picker("Which?", items)))

    typed, done = update_all(waited, Typed("zw"))

    assert done == [FindMatches(4, "zw")]
    model, _ = update_all(typed, Matched(4, "zw", frozenset({"two"})))
    assert update_all(model, Key("enter"))[1] == [Picked(4, "two")]
    for late in (Matched(4, "z", frozenset({"two"})), Matched(5, "zw", frozenset({"two"}))):
        assert update_all(typed, late, Key("enter"))[1] == []


def test_completions_are_requested_only_where_text_can_be_completed() -> None:
    assert update_all(idle_model(), Typed("/he"))[1] == [Complete("/he")]
    assert update_all(idle_model(), Typed("see @a"))[1] == [Complete("see @a")]
    assert update_all(idle_model(), Typed("@ab"), Key("left"))[1] == [
        Complete("@ab"),
        Complete("@a"),
    ]
    assert update_all(idle_model(), Typed("words"))[1] == []


def test_blocks_are_selected_opened_and_copied() -> None:
    selected, _ = update_all(idle_model(), Key("ctrl+up"))

    assert update_all(selected, Typed("c"))[1] == [Copy("code")]
    assert update_all(selected, Typed("y"))[1] == [Copy("Here is `x`:\n\n```\ncode\n```")]
    assert update_all(selected, Key("esc"))[0].focus == "input"


def test_a_click_opens_a_folded_call_and_the_wheel_scrolls() -> None:
    story = Story()
    story.turn("Go.").tell(
        *story.call(ENDS[0]), *[e for _ in range(9) for e in story.call(ENDS[0])]
    )
    model = model_of(story, 80, 20)

    up, _ = update_all(model, Mouse("wheel_up", 0, 0))
    result, _ = update_all(model, Mouse("press", 4, 2))

    assert up.anchor is not None
    assert len(result.transcript.flipped) == 1
    assert update_all(up, Key("ctrl+end"))[0].anchor is None


def test_a_subagent_is_watched_and_stopped_from_its_panel() -> None:
    story = Story().turn("Go.")
    story.tell(ChildBorn("child-1", "c9", "explore", "look"))
    panel, _ = update_all(model_of(story), Key("f3"), Key("tab"))

    assert update_all(panel, Key("enter"))[1] == [Watch("child-1")]
    assert update_all(panel, Typed("x"))[1] == [Send(StopChild("child-1"))]
    assert update_all(panel, Key("esc"))[0].panel == ""


def test_a_subagent_is_watched_and_stopped_while_its_question_is_open() -> None:
    story = Story().turn("Go.")
    call = ToolCall("c1", "bash", Raw(b'{"command":"ls"}'))
    story.tell(
        ChildBorn("child-1", "c9", "explore", "look"),
        ChildAsked("child-1/c1", "child-1", "explore", call),
    )
    panel, _ = update_all(model_of(story, height=30), QUESTION, Key("f3"), Key("tab"))
    watched, done = update_all(
        panel, Key("enter"), TranscriptLoaded("child-1", "child-1 (explore)", ())
    )

    assert "asks: bash ls" in text(panel)
    assert update_all(panel, Typed("y", 900.0))[1] == []
    assert update_all(panel, Typed("x"))[1] == [Send(StopChild("child-1"))]
    assert done == [Watch("child-1")]
    assert "child-1 (explore) Esc closes" in text(watched)
    assert update_all(watched, Typed("y", 900.0))[1] == [Answer(7, "y")]
    closed, left = update_all(watched, Key("esc"))
    assert (closed.watching, left) == (None, [Watch("")])
    assert update_all(closed, Key("esc"))[1] == [Answer(7, key="esc")]


@pytest.mark.parametrize("rows", [8, 12, 20, 40])
def test_a_panel_beside_a_long_question_opens_only_on_a_high_enough_screen(
    rows: int,
) -> None:
    body = tuple(line(f"row {n}") for n in range(60))
    model, _ = update_all(
        model_of(Story().turn("Go."), height=rows), replace(QUESTION, body=body)
    )

    panel, _ = update_all(model, Key("f5"), Key("tab"))

    assert ("Context and cost" in text(panel)) == (panel.focus == "panel")
    assert panel.focus == ("panel" if rows >= 20 else "input")


def test_ctrl_z_and_ctrl_l_work_while_a_dialog_is_open() -> None:
    for overlay in (QUESTION, PaletteLoaded(Picker("Find", ())), Key("ctrl+s")):
        model, _ = update_all(idle_model(), overlay)

        assert update_all(model, Key("ctrl+z"))[1] == [Suspend()]
        assert update_all(model, Key("ctrl+l"))[1] == [Repaint()]


def test_closing_the_view_of_a_subagent_stops_watching_it() -> None:
    model = model_of(Story().turn("Go."))
    result, _ = update_all(model, TranscriptLoaded("child-1", "child-1 (explore)", ()))

    left, commands = update_all(result, Key("esc"))

    assert (left.watching, commands) == (None, [Watch("")])


def test_the_task_board_is_followed_only_while_its_panel_is_open() -> None:
    model = idle_model()

    result, first = update_all(model, Key("f7"))
    other, again = update_all(result, FactsChanged(Facts("other", "a/m")))
    _, at_end = update_all(other, Key("f7"))

    assert (first, again, at_end) == ([Follow("tasks")], [Follow("tasks")], [Follow("")])


def test_switching_sessions_clears_the_task_board_and_background_output() -> None:
    read = (BoardRead((BoardTask(1, "Mend it"),)), OutputsRead({"background-1": "up"}))

    model, _ = update_all(idle_model(), *read, FactsChanged(Facts("other", "a/m")))

    assert (model.board, model.printed) == (None, {})


def test_a_background_command_is_shown_and_stopped_from_its_panel() -> None:
    story = Story().turn("Go.")
    story.tell(BackgroundStarted("background-1", "make serve", "c9"))
    panel, _ = update_all(model_of(story), Key("f8"), Key("tab"))
    loaded = OutputLoaded("background-1", "background-1: make serve", "one\ntwo\n")

    model, _ = update_all(panel, loaded)

    assert update_all(panel, Key("enter"))[1] == [Watch("background-1")]
    assert update_all(panel, Typed("x"))[1] == [Send(StopBackground("background-1"))]
    assert [row.strip() for row in text(model).split("\n")[:2]] == ["one", "two"]
    assert "background-1: make serve" in text(model)


def test_ctrl_b_moves_the_running_command_only_if_the_input_is_empty() -> None:
    story = Story().turn("Go.")
    working = model_of(story)
    typing, _ = update_all(working, Typed("ab"))
    moved, orders = update_all(typing, Key("ctrl+b"), Typed("x"))
    story.tell(TurnEnded("answered"))

    assert update_all(working, Key("ctrl+b"))[1] == [Send(MoveToBackground())]
    assert update_all(model_of(story), Key("ctrl+b"))[1] == []
    assert (orders, moved.composer.field.text) == ([], "axb")


def test_new_output_does_not_move_a_scrolled_view() -> None:
    lines = [f"line {n}" for n in range(60)]
    model = model_of(Story().turn("Go."), 80, 20)
    first, _ = update_all(
        model, OutputLoaded("background-1", "b", "\n".join(lines)), Key("ctrl+home")
    )

    more, _ = update_all(
        first, OutputLoaded("background-1", "b", "\n".join([*lines, "new"]))
    )

    assert text(more).startswith("line 0")
    assert text(update_all(more, Key("ctrl+end"))[0]).count("new") == 1


def test_rows_of_nested_subagents_belong_to_the_selected_subagent() -> None:
    story = Story().turn("Go.")
    story.tell(ChildBorn("child-1", "c8", "explore", "look"))
    story.tell(ChildBorn("child-2", "c9", "explore", "read"))
    model = model_of(story)
    moved = ChildMoved("child-1/child-1", "explore", "deeper", 1, 10, None, "grep x")
    model, _ = update_all(model, News((Frame(model.screen.view.seq, 1, moved),)))

    second, _ = update_all(model, Key("f3"), Key("tab"), Key("down"))

    assert update_all(second, Typed("x"))[1] == [Send(StopChild("child-2"))]


OTHER, SAME = FactsChanged(Facts("other", "b/m")), FactsChanged(Facts("s", "a/m"))


def test_switching_to_another_session_clears_the_screen() -> None:
    model, _ = update_all(idle_model(), OTHER)

    assert len(model.transcript) == 0
    assert "b/m" in text(model)


def test_a_draft_is_restored_when_its_session_is_opened_again() -> None:
    there, _ = update_all(idle_model(), Typed("for s"), DraftLeft(), OTHER)
    back, _ = update_all(there, Typed("for other"), DraftLeft(), SAME)
    again, _ = update_all(back, DraftLeft(), OTHER)

    texts = [model.composer.field.text for model in (there, back, again)]
    assert texts == ["", "for s", "for other"]


def test_text_typed_while_a_session_opens_goes_to_that_session() -> None:
    model, _ = update_all(
        idle_model(), Typed("for s"), DraftLeft(), Typed("for other"), OTHER
    )

    assert model.composer.field.text == "for other"


def test_a_draft_is_restored_if_the_other_session_cannot_be_opened() -> None:
    model, _ = update_all(
        idle_model(), Typed("for s"), DraftLeft(), Typed("more"), DraftLeft(back=True)
    )

    assert model.composer.field.text == "for s\nmore"


def test_the_draft_is_stored_instead_of_a_history_entry_shown_in_the_input() -> None:
    looking = update_all(idle_model(), Remembered(("older",)), Typed("mine"), Key("up"))[0]
    there, _ = update_all(looking, DraftLeft(), OTHER)
    back, _ = update_all(there, DraftLeft(), SAME)

    assert looking.composer.field.text == "older"
    assert there.composer.field.text == ""
    assert back.composer.field.text == "mine"


def test_search_scrolls_to_the_row_that_contains_the_text() -> None:
    long = "\n\n".join(f"paragraph {n}" for n in range(40))
    story = Story()
    story.turn("Go.", story.answer_events(f"first words\n\n{long}"))
    searching = (Key("ctrl+s"), Typed("first words"))

    model, _ = update_all(model_of(story, height=14), *searching)

    assert "first words" in plain_text(view(model).rows[:8])


def test_search_expands_a_folded_call_whose_hidden_rows_contain_the_text() -> None:
    story = Story()
    output = "\n".join(f"row {n}" for n in range(40))
    end = Ended("", "done", output, (Output("seq", output, 0),))
    story.turn("Go.", story.call(end), story.answer_events("Done."))

    model, _ = update_all(model_of(story), Key("ctrl+s"), Typed("row 20"))

    assert "row 20" in plain_text(view(model).rows[:16])


def test_search_scrolls_to_the_block_and_reports_when_nothing_is_found() -> None:
    story = Story()
    story.turn("needle one")
    for n in range(30):
        story.tell(*story.answer_events(f"answer {n}"), ModelAsked())
    model = model_of(story, 80, 12)

    result, _ = update_all(model, Key("ctrl+s"), Typed("needle"))
    missed, _ = update_all(result, Typed("zzz"))

    assert "needle one" in text(result)
    assert "not found" in text(missed)


MESSAGES = some.one_of(
    some.sampled_from([
        Key(name, 5.0) for name in (
            "enter", "esc", "up", "down", "tab", "ctrl+c", "ctrl+o", "ctrl+s", "ctrl+t", "f2", "f4",
            "f7", "f8",
            "pageup", "pagedown", "ctrl+up", "backspace", "ctrl+w", "ctrl+r", "ctrl+home", "f5",
        )
    ]),
    WORDS.map(lambda words: Typed(words or "x", 6.0)),
    WORDS.map(Paste),
    some.sampled_from([
        QUESTION, replace(QUESTION, keys="", text="a"), Withdrawn(7), Key("ctrl+l"), Tick(9.0),
        Resized(40, 12), Resized(160, 40), RowsPrinted((line("printed"),)), Mouse("wheel_up", 1, 1),
        Mouse("press", 1, 3), News((Frame(2, 1, TextCame("more ")),)),
    ]),
)  # fmt: skip


@given(some.lists(MESSAGES, max_size=25))
def test_the_same_messages_give_the_same_screen(messages: list[Message]) -> None:
    first, done = update_all(idle_model(), *messages)
    again, done_again = update_all(idle_model(), *messages)

    assert view(first) == view(again)
    assert done == done_again
    assert len(view(first).rows) == first.height


@settings(deadline=None)
@given(stories())
def test_the_full_screen_shows_finished_blocks_and_running_calls_in_order(
    story: Story,
) -> None:
    model = model_of(story)

    calls = [item for item in model.screen.open if not isinstance(item, MessageBlock)]
    assert [*model.transcript.items, *model.transcript.open] == [*model.screen.done, *calls]
    exported = transcript(model.screen)
    for block in model.screen.blocks:
        if isinstance(block, MessageBlock | Notice):
            parts = (
                block.user_text
                if isinstance(block, MessageBlock)
                else plain_text([block.line])
            ).split()
            assert not parts or not parts[0].isalnum() or parts[0] in exported


MENU = Menu(
    tuple(Choice(id_, id_.upper(), widens=id_ not in "yn") for id_ in "ysawen"), "stop"
)


def update_without_repaint(model: Model, *messages: Message) -> tuple[Model, list[Command]]:
    """As `after`, without the commands that only paint the question again."""
    model, done = update_all(model, *messages)
    return model, [command for command in done if not isinstance(command, WakeAfter)]


SENTENCES = some.sampled_from([
    "hey do you", "try harder", "please be quicker", "and you too", "yes, but write a test",
    "no wait", "y", "n", "1 more thing", "2", "e", "always ask", "session 3 is done.",
])  # fmt: skip
PAUSES = some.floats(0.01, 5.0)


@given(
    SENTENCES, some.lists(PAUSES, min_size=30, max_size=30), some.integers(1, 25),
    some.sampled_from([MENU, Menu(free_text=True), replace(MENU, send_leaves=True)]),
)  # fmt: skip
def test_question_is_not_answered_by_typing_in_the_full_screen(
    sentence: str, pauses: list[float], comes: int, menu: Menu
) -> None:
    model, done, now = busy_model(), list[Command](), 50.0
    for number, letter in enumerate(sentence, 1):
        now += pauses[number]
        model, commands = update_without_repaint(model, Typed(letter, now))
        done += commands
        if number == min(comes, len(sentence)):
            model, _ = update_without_repaint(
                model, Asked(7, (line("?"),), (), at=now + 0.001, menu=menu)
            )

    assert (model.composer.field.text, done) == (sentence, [])
    assert "a question waits" in text(model)
    result, done = update_without_repaint(model, Key("enter", now + pauses[0]))
    assert done[:2] == [Remember(sentence), Submit(sentence, "now")]
    assert done[2:] == ([Answer(7, key="esc")] if menu.send_leaves else [])
    assert result.composer.field.text == ""


def test_question_is_answered_after_a_pause_in_typing_in_the_full_screen() -> None:
    question = Asked(7, (line("?"),), (), at=100.0, menu=MENU)
    model = update_without_repaint(
        busy_model(), Typed("x", 99.0), Key("backspace", 99.5), question
    )[0]

    assert "› 1 Y" not in text(model)
    calm, _ = update_without_repaint(model, Woken(100.7))
    assert "› 1 Y (y) · 2 S" in text(calm)
    assert update_without_repaint(calm, Typed("y", 101.0))[1] == [Answer(7, "y")]
    assert update_without_repaint(calm, Key("enter", 101.0))[1] == [Answer(7, "y")]
    assert update_without_repaint(calm, Key("down", 101.0), Key("enter", 101.1))[1] == [
        Answer(7, "s")
    ]
    assert update_without_repaint(calm, Typed("3", 101.0), Key("enter", 101.1))[1] == [
        Answer(7, "a")
    ]
    assert update_without_repaint(model, Typed("3", 100.3), Key("enter", 100.4))[1] != [
        Answer(7, "a")
    ]
    assert update_without_repaint(calm, Key("esc", 101.0))[1] == [Answer(7, key="esc")]


@pytest.mark.parametrize("end", [Withdrawn(6, 105.0), Typed("y", 105.0), Key("esc", 105.0)])
def test_a_key_meant_for_the_question_before_does_not_answer_the_next(
    end: Withdrawn | Typed | Key,
) -> None:
    before = Asked(6, (line("Rewind?"),), line("y/n "), keys="yn", at=90.0)
    waits = Asked(7, (line("May it?"),), (), at=91.0, menu=MENU)
    model = update_without_repaint(busy_model(), before, waits, end)[0]

    assert "May it?" in text(model)
    assert "› 1 Y" not in text(model)
    assert Answer(7, "y") not in update_without_repaint(model, Key("enter", 105.2))[1]
    assert Answer(7, "y") not in update_without_repaint(model, Typed("y", 105.2))[1]
    assert update_without_repaint(model, Key("enter", 105.8))[1] == [Answer(7, "y")]


def test_question_is_shown_after_an_open_list_is_closed() -> None:
    model, _ = update_without_repaint(
        busy_model(), PaletteLoaded(Picker("All", ())), Typed("yes", 100.0),
        Asked(7, (line("May it?"),), (), at=100.1, menu=MENU),
    )  # fmt: skip

    assert "a question waits" in text(model)
    left, done = update_all(model, Key("esc", 105.0))
    assert "May it?" in text(left)
    assert done == [WakeAfter(0.7)]
