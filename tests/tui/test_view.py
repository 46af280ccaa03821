"""The frame: it fills the screen, and nothing on it is ever too wide."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from refold.journal.events.child_events import (
    BackgroundEnded,
    BackgroundStarted,
    ChildBorn,
    TeammateIdled,
)
from refold.journal.events.kinds import Delivered, Ended, Said, TurnEnded, TurnStarted
from refold.tui.messages import (
    PANEL_NAMES,
    Asked,
    AskedToPick,
    BoardRead,
    Key,
    News,
    Offered,
    OutputsRead,
    RowsPrinted,
    Typed,
)
from refold.tui.model import Model
from refold.tui.transcript import Memo
from refold.tui.update import update
from refold.tui.view import Frame, divide_screen, view
from refold.values.control import BoardTask
from refold.values.messages import Image
from refold.views.picker import CompletionItem, Picker, PickerItem, Stepper
from refold.views.question_keys import Choice, Menu
from refold.views.screen.screen import Screen
from refold.views.styled import line, plain_text
from refold.views.wrap import cells
from tests.tui.sessions import PLAN, WORDS, Story, model_of, stories

LONG = line("a long row of a question " * 12)


def check_fits(frame: Frame, width: int, height: int) -> None:
    assert len(frame.rows) == height
    assert [row for row in frame.rows if cells(plain_text([row])) > width] == []
    if frame.cursor is not None:
        assert 0 <= frame.cursor[0] < height


def update_all(model: Model, *messages: object) -> Model:
    for message in messages:
        model, _ = update(model, message)  # type: ignore[arg-type]
    return model


def text(model: Model) -> str:
    return plain_text(view(model).rows)


@given(
    stories(),
    some.integers(20, 300),
    some.integers(4, 60),
    WORDS,
    some.sampled_from(PANEL_NAMES),
)
def test_every_frame_fits_its_screen(
    story: Story, width: int, height: int, words: str, panel: str
) -> None:
    model = model_of(story, width, height)
    item = PickerItem("x", lambda room: line("x" * room), "x")
    states = [
        model,
        update_all(model, Typed(words)),
        replace(model, panel=panel),
        replace(model, panel=panel, focus="panel"),
        update_all(model, Typed("/"), Offered("/", (CompletionItem("/help", 1, words),) * 20)),
        update_all(model, Asked(1, (LONG,) * 40, LONG, keys="yn")),
        update_all(model, Asked(1, (LONG,), line("why? "), text=words)),
        update_all(model, AskedToPick(1, Picker(words, (item,) * 30, dial=Stepper("effort", ("a", "b"))))),
        update_all(model, Key("ctrl+s"), Typed(words)),
        update_all(model, Key("ctrl+up")),
        update_all(model, Key("ctrl+o"), Key("pageup")),
    ]  # fmt: skip

    for state in states:
        check_fits(view(state), width, height)


@pytest.mark.parametrize("width", range(20, 301, 7))
def test_wide_characters_plans_and_tables_never_exceed_the_screen_width(width: int) -> None:
    story = Story()
    story.turn("日本語 " * 20 + "👨‍👩‍👧" * 20 + " שלום")
    story.tell(*story.call(PLAN, "exit_plan_mode", "{}"))
    story.tell(*story.answer_events("| a | b |\n|---|---|\n| 1 | " + "long " * 30 + " |"))

    check_fits(view(model_of(story, width, 30)), width, 30)


def panel_rows(model: Model) -> list[str]:
    """Return the rows of the panel at the right of a wide screen, without empty ones."""
    rows = [plain_text([row]).partition("│ ")[2].strip() for row in view(model).rows]
    return [row for row in rows[1:] if row]


def test_the_task_board_lists_open_tasks_first_with_their_owners() -> None:
    story = Story().turn("Go.")
    story.tell(ChildBorn("child-1", "c9", "main", "check", teammate="ada", background=True))
    tasks = (
        BoardTask(1, "Read it", status="done"),
        BoardTask(2, "Mend it", "All of it.", status="in_progress", owner="s/child-1"),
        BoardTask(3, "Try it", blocked_by=(2,), waits_for=(2,)),
    )
    model = update_all(model_of(story, 150, 20), Key("f7"), BoardRead(tasks))
    model = replace(model, screen=with_id(model, "s"))

    rows = panel_rows(update_all(model, Key("tab")))

    assert panel_rows(model) == [
        "[>] #2  Mend it  (ada)", "[ ] #3  Try it  (waits for #2)", "[x] #1  Read it",
        "2 open (1 in progress), 1 done", "Tab to focus",
    ]  # fmt: skip
    assert rows[:2] == ["› [>] #2  Mend it  (ada)", "All of it."]


def with_id(model: Model, id_: str) -> Screen:
    view = model.screen.view
    return replace(model.screen, view=replace(view, session=replace(view.session, id=id_)))


def test_a_task_board_that_cannot_be_read_shows_the_reason() -> None:
    model = update_all(model_of(Story(), 150, 20), Key("f7"))

    rows = panel_rows(update_all(model, BoardRead(problem="tasks.jsonl is damaged")))

    assert panel_rows(model)[0] == "The board is being read."
    assert rows[0] == "tasks.jsonl is damaged"


def test_a_background_command_is_shown_with_its_state_time_and_last_line() -> None:
    story = Story().turn("Go.")
    story.tell(
        BackgroundStarted("background-1", "make test"), BackgroundStarted("background-2", "serve"),
        BackgroundEnded("background-1", "failed", 2, text="one\ntwo failed\n\n"),
    )  # fmt: skip
    model = update_all(model_of(story, 150, 20), Key("f8"))

    rows = panel_rows(update_all(model, OutputsRead({"background-2": "listens"}, 1_000.0)))

    assert rows == [
        "background-2 runs · 15 min 30 s", "serve", "listens",
        "background-1 ended: exit code 2 · 20.0 s", "make test", "two failed", "Tab to focus",
    ]  # fmt: skip


def test_a_teammate_is_shown_with_its_name_and_whether_it_works() -> None:
    story = Story().turn("Go.")
    for n, name in enumerate(("ada", "bob"), 1):
        story.tell(
            ChildBorn(f"child-{n}", "c9", "main", "check", teammate=name, background=True)
        )
    story.tell(TeammateIdled("child-2"))

    rows = panel_rows(update_all(model_of(story, 150, 20), Key("f3")))

    assert [row.split(" · ")[0] for row in rows[:2]] == [
        "ada (child-1, main) works", "bob (child-2, main) idle",
    ]  # fmt: skip


def test_a_panel_is_beside_the_transcript_on_wide_screens_and_below_it_on_others() -> None:
    story = Story()
    story.turn("Go.").tell(*story.answer_events("Yes."))

    wide = text(replace(model_of(story, 150, 20), panel="cost"))
    narrow = text(replace(model_of(story, 80, 20), panel="cost"))

    assert "│ ─ Context" in wide.splitlines()[0]
    assert any(row.startswith("─ Context") for row in narrow.splitlines())


@pytest.mark.parametrize("width", [80, 150])
def test_an_empty_panel_uses_no_rows_and_a_line_above_the_input_names_it(
    width: int,
) -> None:
    story = Story()
    story.turn("Go.").tell(*story.answer_events("Yes."))
    plain = model_of(story, width, 20)

    model = update_all(plain, Key("f3"))

    assert divide_screen(model).text_width == divide_screen(plain).text_width
    assert divide_screen(model).height == divide_screen(plain).height
    assert "── No subagents yet. ─" in text(model)
    assert update_all(model, Key("tab")).focus == "input"
    assert update_all(plain, Key("f2")).panel == "tasks"
    assert update_all(plain, Key("f2"), BoardRead(), Key("f2")).panel == "cost"


def test_all_rows_of_a_selected_block_are_marked() -> None:
    story = Story()
    story.turn("Go.").tell(
        *story.answer_events("A *fine* answer that is wider than the screen is.")
    )
    plain = model_of(story, 30, 20)

    rows = [
        plain_text([row]).rstrip() for row in view(update_all(plain, Key("ctrl+up"))).rows
    ]

    assert [row for row in rows if row.startswith("▌")] == [
        "▌A fine answer that is wider", "▌than the screen is.",
    ]  # fmt: skip


def test_the_list_of_keys_covers_the_transcript_and_closes_with_the_same_key() -> None:
    plain = model_of(Story().turn("Go."), 80, 20)
    model = update_all(plain, Typed("?"))

    assert "send; while it works" in text(model)
    for message in (Typed("?"), Key("esc")):
        assert update_all(model, message) == plain
    typing = update_all(model, Typed("h"))
    assert (typing.watching, typing.composer.field.text) == (None, "h")


def test_link_addresses_are_shown_where_the_terminal_does_not_open_links() -> None:
    story = Story()
    story.turn("Go.").tell(*story.answer_events("See [it](https://example.org/a)."))

    plain = model_of(story, 80, 20)
    linked = replace(plain, transcript=replace(plain.transcript, links=True, memo=Memo()))

    assert "See it (https://example.org/a)." in text(plain)
    assert "See it." in text(linked)


def test_the_hint_of_a_stopped_turn_is_removed_when_the_turn_ends() -> None:
    story = Story().turn("Go.")
    stopping = update_all(model_of(story), Key("esc"))

    ended = update_all(
        stopping, News(tuple(story.tell(TurnEnded("interrupted")).frames[-1:]))
    )

    assert stopping.hint
    assert ended.hint == ""


def test_the_status_line_says_model_branch_context_and_cost() -> None:
    story = Story()
    story.turn("Go.").tell(*story.answer_events("Yes."))

    last = text(model_of(story, 90, 12)).splitlines()[-1]

    assert last.startswith(" a/m · main")
    assert last.endswith("? keys")


def test_a_question_replaces_the_input_and_can_be_scrolled_to_its_end() -> None:
    body = tuple(line(f"row {n}") for n in range(60))
    model = update_all(model_of(Story(), 60, 20), Asked(1, body, line("y once"), keys="yn"))

    assert "row 0" in text(model)
    assert "row 59" not in text(model)
    assert "row 59" in text(update_all(model, *[Key("pagedown")] * 9))
    assert view(model).cursor is None


@pytest.mark.parametrize("width", [40, 60])
@pytest.mark.parametrize("part", ["body", "prompt", "choices"])
def test_a_word_wider_than_the_screen_is_shown_whole_in_every_part_of_a_question(
    part: str, width: int
) -> None:
    word = "".join(chr(0x4E00 + n) for n in range(150))  # each letter once, 300 cells
    body = (line(f"Shall it run {word} now?" if part == "body" else "Shall it run?"),)
    prompt = line(f"a key for {word}: " if part == "prompt" else "a key: ")
    labels = (word, f"no {word}") if part == "choices" else ("yes", "no")
    menu = Menu(tuple(Choice(str(n), label) for n, label in enumerate(labels)), "later")
    request = Asked(1, body, prompt, menu=None if part == "prompt" else menu)
    model = update_all(model_of(Story(), width, 24), request)

    pages = [update_all(model, *[Key("pagedown")] * count) for count in range(5)]
    shown = "".join(text(page) for page in pages)

    assert [letter for letter in word if letter not in shown] == []
    assert "Shall it run" in text(model)


def test_long_choices_leave_the_question_on_the_screen() -> None:
    choices = tuple(Choice(str(n), "x" * 300) for n in range(9))
    body = tuple(line(f"row {n}") for n in range(30))
    model = update_all(
        model_of(Story(), 40, 24), Asked(1, body, (), menu=Menu(choices, "no answer"))
    )

    rows = text(model).splitlines()

    assert " row 0" in rows
    assert [row for row in rows if row.strip().startswith("9 xxx")]
    assert "a question waits" in rows[-2]


def test_queued_messages_are_shown_above_the_input() -> None:
    from refold.journal.events.kinds import Said

    story = Story()
    story.turn("Go.").tell(Said("also this", when="next"))

    assert "▸ after this turn: also this" in text(model_of(story, 80, 12))


def test_matches_of_a_search_are_marked() -> None:
    story = Story()
    story.turn("Go.").tell(*story.answer_events("find the needle here"))
    model = update_all(model_of(story, 60, 12), Key("ctrl+s"), Typed("needle"))

    pieces = [piece for row in view(model).rows for piece in row]

    assert ("selected", "needle") in pieces


def test_a_block_of_blank_rows_can_be_selected() -> None:
    printeds = RowsPrinted((line("above"),)), RowsPrinted(((), ()), begins=True)
    model = update_all(replace(Model(), height=12), *printeds, Key("ctrl+up"))

    assert model.focus == "transcript"
    assert "▌" in text(model)


def test_images_of_messages_and_results_are_named_with_their_kind() -> None:
    image, second_image = (
        Image("b1", "image/png", "plan\x1b.png"),
        Image("b2", "image/webp"),
    )
    story = Story().tell(Said("Look", images=(image,)), TurnStarted(2), Delivered((2,)))
    end = Ended("", "done", "an image")
    events = story.call(end, "read_file", '{"path":"a.webp"}')
    events[-2] = replace(events[-2], images=(second_image,))
    shown = text(model_of(story.tell(*events)))

    assert "▣ plan\\x1b.png · image/png" in shown
    assert "▣ image/webp" in shown
