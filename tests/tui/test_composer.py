"""The input line: history, suggestions, completions and the search in earlier inputs."""

from refold.tui.composer import (
    Composer,
    accept_completion,
    clear_field,
    insert,
    press_key,
    remember_input,
    with_offers,
    with_text,
)
from refold.views.picker import CompletionItem

EARLIER = ("fix the test", "explain main.py", "fix the door")


def press_keys(composer: Composer, *keys: str) -> Composer:
    for key in keys:
        composer = press_key(composer, key) or composer
    return composer


def test_up_key_shows_earlier_inputs_and_down_key_restores_the_draft() -> None:
    composer = insert(Composer(history=EARLIER), "draft")

    assert press_keys(composer, "up").field.text == "fix the door"
    assert press_keys(composer, "up", "up", "up", "up").field.text == "fix the test"
    assert press_keys(composer, "up", "up", "down", "down").field.text == "draft"


def test_up_key_moves_within_the_lines_before_it_shows_an_earlier_input() -> None:
    composer = with_text(Composer(history=EARLIER), "one\ntwo")

    moved = press_keys(composer, "up")
    assert (moved.field.text, moved.field.at) == ("one\ntwo", 3)
    assert press_keys(moved, "up").field.text == "fix the door"


def test_the_rest_of_an_earlier_input_is_suggested_and_accepted_with_right() -> None:
    composer = insert(Composer(history=EARLIER), "fix")

    assert composer.suggestion == " the door"
    assert press_keys(composer, "right").field.text == "fix the door"
    assert insert(composer, "!").suggestion == ""


def test_ctrl_r_repeated_finds_each_earlier_input_that_contains_the_text() -> None:
    searching = insert(press_keys(Composer(history=EARLIER), "ctrl+r"), "fix")

    assert (searching.search, searching.field.text) == ("fix", "fix the door")
    assert press_keys(searching, "ctrl+r").field.text == "fix the test"
    assert press_keys(searching, "enter").search is None
    assert press_keys(searching, "esc").field.text == ""


def test_completions_for_another_text_are_not_shown() -> None:
    composer = insert(Composer(), "/he")
    offers = (CompletionItem("/help", 3, "lists"), CompletionItem("/hello", 3))

    assert with_offers(composer, "/h", offers).offers == ()
    result = with_offers(composer, "/he", offers)
    assert result.offers == offers
    assert press_keys(result, "tab").field.text == "/help"
    assert press_keys(result, "down", "down", "enter").field.text == "/hello"
    assert press_keys(result, "esc").offers == ()
    assert accept_completion(result, 1).field.text == "/hello"


def test_an_input_repeated_in_a_row_is_in_the_history_once() -> None:
    composer = remember_input(remember_input(Composer(), "a"), "a")

    assert composer.history == ("a",)
    assert clear_field(insert(composer, "b")).field.text == ""
    assert remember_input(composer, "  ").history == ("a",)
