"""Questions of the model with options, answered by number or by text."""

import pytest

from refold.journal.state.plans import Plan
from refold.values.display import AskedQuestion, Option
from refold.views.questions import answer_hint, option_menu, parse_answer, question_lines
from refold.views.styled import plain_text
from refold.views.todo_list import plan_lines

ONE = AskedQuestion("Which?", [Option("red"), Option("blue", "cold"), Option("10")])
MANY = AskedQuestion("Which?", [Option("red"), Option("blue")], many=True)
FREE = AskedQuestion("How many?")


@pytest.mark.parametrize(
    ("asked", "typed", "answer"),
    [
        (ONE, "1", "red"),
        (ONE, " 3 ", "10"),
        (ONE, "4", None),
        (ONE, "0", None),
        (ONE, "1,2", None),
        (ONE, "", ""),
        (ONE, "red", "red"),
        (ONE, "2 but darker", "2 but darker"),
        (MANY, "1 2", "red, blue"),
        (MANY, "2,1,2", "blue, red"),
        (MANY, "2;3", None),
        (FREE, "42", "42"),
        (FREE, " some ", "some"),
    ],
)
def test_an_answer_is_parsed_as_a_number_or_as_text(
    asked: AskedQuestion, typed: str, answer: str | None
) -> None:
    assert parse_answer(typed, asked) == answer


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ONE, "1-3 or text (Enter for no answer)"),
        (MANY, "1-2, several with commas, or text (Enter for no answer)"),
        (AskedQuestion("?", [Option("a")], many=True), "1 or text (Enter for no answer)"),
        (FREE, "your answer (Enter for none)"),
    ],
)
def test_hint_of_a_model_question_lists_the_accepted_answers(
    asked: AskedQuestion, expected: str
) -> None:
    assert answer_hint(asked) == expected


def test_options_are_choices_of_a_menu_if_one_digit_chooses_one_of_them() -> None:
    assert [(c.id, c.label) for c in option_menu(ONE).choices] == [
        ("1", "red"),
        ("2", "blue – cold"),
        ("3", "10"),
    ]
    assert not option_menu(MANY).choices
    assert not option_menu(AskedQuestion("?", [Option("a")] * 10)).choices


def test_hidden_characters_in_a_question_are_escaped_and_its_lines_fit() -> None:
    hostile = AskedQuestion(
        "Which\u202e\x1b[2J " + "w" * 60, [Option("a\nb\u200b", "c\x07" * 40)]
    )

    text = plain_text(question_lines(hostile, 2, 3, 40))

    assert text.startswith("? The model asks you (2 of 3)\n  Which\\u202e\\x1b[2J\n")
    assert "1 a\\nb\\u200b" in text
    assert max(map(len, text.split("\n"))) <= 40


def test_questions_and_option_descriptions_are_wrapped_between_words() -> None:
    question = AskedQuestion("Which one of these?", [Option("red", "the colour of it")])

    rows = plain_text(question_lines(question, 1, 1, 14)).split("\n")

    assert rows == [
        "? The model asks you",
        *("  Which one of", "  these?", "  1 red", "    the colour", "    of it"),
    ]


def test_plans_are_listed_with_their_state() -> None:
    plans = [Plan(3, "One\x1b[2J", "…", state="rejected"), Plan(9, "Two " * 40, "…")]

    rows = plain_text(plan_lines(plans, 60)).split("\n")

    assert [row[18:28].strip() for row in rows] == ["rejected", "waits"]
    assert rows[0].endswith("One\\x1b[2J")
    assert max(map(len, rows)) <= 60
    assert plain_text(plan_lines([], 60)) == "No plan was made in this session."
