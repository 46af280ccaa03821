"""Typing never answers a question: the table of states and keys, and its displays."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from refold.views.question_keys import (
    CALM_SECONDS,
    Choice,
    Menu,
    Pressed,
    menu_line,
    press_key,
    type_text,
)
from refold.views.styled import plain_text

CORPUS = json.loads((Path(__file__).parent / "question_keys.json").read_text("utf-8"))
MENU = Menu(
    tuple(Choice(id_, id_.upper(), widens=id_ not in "yn") for id_ in "ysawen"), "stop"
)


@pytest.mark.parametrize("story", CORPUS, ids=[story["name"] for story in CORPUS])
def test_question_keys_act_as_in_the_table_of_states_and_keys(
    story: dict[str, Any],
) -> None:
    choices = tuple(Choice(id_, "", widens) for id_, widens in story["choices"])
    menu = Menu(choices, free_text=bool(story["free_text"]))
    for step in story["steps"]:
        press, state = step["press"], {"typed": step["typed"], "calm": step["calm"]}
        if "key" in press:
            pressed = press_key(menu, press["key"], **state)
        else:
            pressed = type_text(menu, press["text"], **state)
        menu = pressed.menu
        answer = pressed.action, pressed.value, menu.selected
        assert answer == (step["action"], step["value"], step["selected"])


@given(some.text(min_size=1), some.booleans(), some.booleans(), some.integers(0, 5))
def test_question_keys_typed_text_never_chooses_an_option_that_widens_permissions(
    text: str, typed: bool, calm: bool, selected: int
) -> None:
    pressed = type_text(replace(MENU, selected=selected), text, typed=typed, calm=calm)

    assert pressed.action != "answer" or pressed.value in ("y", "n")


@given(
    some.lists(some.tuples(some.sampled_from("yn12 aeh.\n"), some.booleans()), max_size=9),
)
def test_question_keys_typed_text_stays_in_the_draft_unless_it_answers(
    strokes: list[tuple[str, bool]],
) -> None:
    menu, draft = MENU, ""
    for text, calm in strokes:
        pressed = type_text(menu, text, typed=bool(draft), calm=calm)
        menu, draft = pressed.menu, draft + pressed.value * (pressed.action == "draft")
        if pressed == Pressed("answer", menu, text):
            return

    assert draft + menu.digit == "".join(text for text, _ in strokes)


def test_question_keys_highlight_a_choice_only_when_enter_would_select_it() -> None:
    def row(*, typed: bool, calm: bool) -> str:
        return plain_text([menu_line(MENU, 100, typed=typed, calm=calm)])

    choices = "1 Y (y) · 2 S · 3 A · 4 W · 5 E · 6 N (n)"
    assert row(typed=False, calm=True) == f"› {choices} · esc stop "
    assert row(typed=False, calm=False) == f"{choices} · a question waits "
    assert row(typed=True, calm=True) == (
        f"{choices} · a question waits: Enter sends your message first "
    )


def test_question_keys_wait_for_a_pause_of_half_a_second_to_a_second() -> None:
    assert 0.5 < CALM_SECONDS < 1


def test_question_keys_tab_selects_the_highlighted_choice_with_a_message() -> None:
    menu = replace(MENU, selected=1, amends=True)

    for typed, calm, action, value in (
        (False, True, "answer", "\ts"), (False, False, "wait", ""), (True, True, "edit", ""),
    ):  # fmt: skip
        pressed = press_key(menu, "tab", typed=typed, calm=calm)
        assert (pressed.action, pressed.value) == (action, value)
    assert press_key(MENU, "tab", typed=False, calm=True).action == "edit"


def test_question_keys_long_choices_are_listed_one_per_line() -> None:
    choices = (Choice("y", "once"), Choice("s", f"this session: {'x' * 60}", widens=True))

    rows = plain_text(
        [menu_line(Menu(choices, "stop"), 100, typed=False, calm=True)]
    ).split("\n")

    assert rows == ["› 1 once (y)", f"  2 this session: {'x' * 60}", "esc stop "]


def test_question_keys_choices_wider_than_the_screen_are_wrapped_below_their_text() -> None:
    choices = (Choice("y", "once"), Choice("s", "bash(python3 -m pytest *) for this session"),
        Choice("a", "the same always, in every session of this project", widens=True))  # fmt: skip

    rows = plain_text([menu_line(Menu(choices, "stop"), 32, typed=False, calm=True)]).split(
        "\n"
    )

    assert [row.rstrip() for row in rows] == [
        "› 1 once (y)",
        "  2 bash(python3 -m pytest *)",
        "    for this session",
        "  3 the same always, in every",
        "    session of this project",
        "esc stop",
    ]
