"""Choosing from a list: typing filters, arrows move, and its state is a value."""

import re

import pytest
from msgspec.structs import replace

from refold.journal.catalogue.session_card import Card
from refold.journal.state.session_info import SessionInfo
from refold.values.usage import Spent, Usage
from refold.views.picker import (
    Picker,
    PickerItem,
    Stepper,
    move_selection,
    picker_rows,
    rows_with_numbers,
    turn_dial,
    with_matches,
    with_query,
    with_selection,
)
from refold.views.session_list import session_picker
from refold.views.styled import plain_text

NOW = 1_000_000.0
CARDS = (
    Card("d", SessionInfo(title="Paint the door"), NOW - 5, outcome="answered"),
    Card(
        "c",
        SessionInfo(title="Mend the roof", name="roof", tags=("house",)),
        NOW - 120,
        open=True,
    ),
    Card("b", SessionInfo(title="屋根を直す"), NOW - 7_300, outcome="failed"),
    Card("a", SessionInfo(title="Plant a tree"), NOW - 400_000, outcome="answered"),
)


ALL = session_picker(CARDS, NOW)


def ids(picking: Picker) -> list[str]:
    return [item.id for item in picking.items]


def chosen(picking: Picker) -> str:
    return picking.selection.id if picking.selection else ""


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("", ["d", "c", "b", "a"]),
        ("the", ["d", "c"]),
        ("ROOF mend", ["c"]),
        ("hou", ["c"]),
        ("屋", ["b"]),
        ("zebra", []),
    ],
)
def test_picker_query_filters_the_list(typed: str, shown: list[str]) -> None:
    assert ids(with_query(ALL, typed)) == shown


def test_picker_lists_text_matches_after_name_matches() -> None:
    picking = with_query(ALL, "tree")

    matches = with_matches(picking, "tree", frozenset("ac"))

    assert ids(matches) == ["a", "c"]
    assert with_matches(picking, "something else", frozenset("c")) == picking


def test_the_selected_item_stays_selected_when_more_matches_are_found() -> None:
    picking = move_selection(with_query(ALL, "the"), 1)

    matches = with_matches(picking, "the", frozenset("ab"))

    assert ids(matches) == ["d", "c", "b", "a"]
    assert chosen(matches) == chosen(picking) == "c"


@pytest.mark.parametrize(("steps", "at"), [([1], 1), ([-1], 0), ([9], 3), ([9, -1], 2)])
def test_picker_arrows_stop_at_the_ends_of_the_list(steps: list[int], at: int) -> None:
    picking = ALL

    for step in steps:
        picking = move_selection(picking, step)

    assert chosen(picking) == CARDS[at].id


def test_picker_typing_selects_the_first_match_or_nothing_without_matches() -> None:
    picking = move_selection(ALL, 3)

    assert chosen(with_query(picking, "the")) == "d"
    assert with_query(picking, "zebra").selection is None
    assert plain_text(picker_rows(with_query(picking, "zebra"), 40, 9)) == "  nothing fits"


def test_picker_list_is_drawn_within_the_available_rows() -> None:
    picking = move_selection(ALL, 2)

    assert plain_text(picker_rows(picking, 40, 9)) == (
        "     now  Paint the door\n"
        "   2 min  roof: Mend the r… #house  open\n"
        "›    2 h  屋根を直す  failed\n"
        "     4 d  Plant a tree"
    )
    assert plain_text(picker_rows(picking, 40, 2)) == (
        "   2 min  roof: Mend the r… #house  open\n›    2 h  屋根を直す  failed\n  3 of 4"
    )


def test_the_last_message_and_response_of_the_selected_session_are_previewed() -> None:
    card = replace(
        CARDS[0], asked="Which\ncolour?", answer="Red.\n\nOr:\n\n- blue\n- green"
    )
    picking = session_picker([card, *CARDS[1:]], NOW)

    assert plain_text(picker_rows(picking, 40, 10)).split("\n")[4:] == [
        "", "  › Which colour?", "    Red.", "    Or:", "    - blue",
    ]  # fmt: skip
    assert "Which" not in plain_text(picker_rows(move_selection(picking, 1), 40, 10))
    assert "Which" not in plain_text(picker_rows(picking, 40, 9))  # the list comes first


def test_without_cursor_movement_items_are_numbered() -> None:
    assert plain_text(rows_with_numbers(ALL.choices[2:], 40)) == (
        "1     2 h  屋根を直す  failed\n2     4 d  Plant a tree"
    )


def test_control_sequences_in_session_titles_are_escaped() -> None:
    evil = Card(
        "e", SessionInfo(title="\x1b[2J\rx\u202e", name="\x07", tags=("\x9b",)), NOW,
        asked="\x1b[2J\u202e", answer="\x1b]0;x\x07\r",
    )  # fmt: skip

    picker = session_picker([evil], NOW)
    drawn = plain_text(
        [*picker_rows(picker, 60, 12), *rows_with_numbers(picker.choices, 60)]
    )

    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", drawn) == []


def test_a_stepper_is_changed_within_its_values_and_drawn_below_the_list() -> None:
    one = PickerItem("x", lambda room: (("plain", "x"),), "x")
    picking = with_selection(
        Picker("?", (one,), dial=Stepper("effort", ("low", "high"))), "x"
    )

    assert plain_text(picker_rows(picking, 40, 9)) == "› x\n  effort:   low →"
    right = turn_dial(turn_dial(picking, 1), 1)
    assert plain_text(picker_rows(right, 40, 9)) == "› x\n  effort: ← high"
    assert right.dial
    assert right.dial.value == "high"
    assert turn_dial(right, -9) == picking
    assert turn_dial(ALL, 1) == ALL


def test_a_wide_session_row_shows_messages_cost_and_model() -> None:
    used = Card(
        "f", SessionInfo(title="Mend", model="anthropic/claude-sonnet-5"), NOW - 5,
        messages=4, spent=Spent(Usage(10, 0, 0, 5), 0.12, 1), outcome="answered",
    )  # fmt: skip

    [row] = picker_rows(session_picker([used], NOW), 100, 9)

    assert plain_text([row]).split() == [
        "›", "now", "Mend", "4", "messages", "$0.12", "claude-sonnet-5",
    ]  # fmt: skip


def test_a_sample_is_shown_below_the_picker_list() -> None:
    picker = Picker("Which?", ALL.choices[:1], sample=((("added", "+ new"),),))

    assert plain_text(picker_rows(picker, 40, 9)).endswith("Paint the door\n+ new")


def test_a_stepper_filters_the_list_by_its_value() -> None:
    items = tuple(
        PickerItem(name, lambda room: (), name, groups=("all", kind))
        for name, kind in (("a", "allow"), ("d", "deny"), ("e", "deny"))
    )
    always = PickerItem("+", lambda room: (), "add")
    picker = Picker("?", (always, *items), dial=Stepper("show", ("all", "allow", "deny")))

    denied = with_selection(picker, "e", "deny")

    assert [item.id for item in picker.items] == ["+", "a", "d", "e"]
    assert [item.id for item in denied.items] == ["+", "d", "e"]
    assert denied.selection == items[2]
    assert [item.id for item in with_query(turn_dial(picker, 1), "a").items] == ["+", "a"]
    assert with_selection(picker, "a", "deny") == picker
