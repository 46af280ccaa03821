"""What a user types into a form of an MCP server becomes a value, or is refused with a reason."""

import re

import pytest

from refold.values.display import Form, FormAnswer, FormField, FormOption, FormValue
from refold.values.forms import (
    as_schema,
    field_hint,
    parse_answer,
    parse_field,
    problems_in,
    shown_value,
)

COLOURS = (FormOption("r", "Red"), FormOption("b", "Blue"), FormOption("2", "Two"))
TEXT = FormField("x", "text", low=2, high=4)
WHOLE = FormField("x", "integer", low=1, high=10)
CHOICE = FormField("x", "choice", options=COLOURS)
CHOICES = FormField("x", "choices", options=COLOURS, low=1, high=2)


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        (TEXT, " abc ", "abc"),
        (TEXT, "", None),
        (WHOLE, "10", 10),
        (FormField("x", "number"), "-1.5", -1.5),
        (FormField("x", "boolean"), "Yes", True),
        (FormField("x", "boolean"), "off", False),
        (CHOICE, "1", "r"),
        (CHOICE, "2", "2"),  # a value counts before a number
        (CHOICE, "blue", "b"),
        (CHOICES, "1, Blue, r", ["r", "b"]),
        (FormField("x", "text", format="email"), "a@b", "a@b"),
        (FormField("x", "text", format="uri"), "urn:isbn:1", "urn:isbn:1"),
        (FormField("x", "text", format="date"), "2024-02-29", "2024-02-29"),
        (FormField("x", "text", format="date-time"), "2024-02-29T10:00:00Z", "2024-02-29T10:00:00Z"),
    ],
)  # fmt: skip
def test_typed_text_becomes_the_value_of_a_form_field(
    field: FormField, typed: str, value: FormValue | None
) -> None:
    assert parse_field(field, typed) == value


@pytest.mark.parametrize(
    ("field", "typed", "why"),
    [
        (TEXT, "a", "give 2 to 4 characters"),
        (TEXT, "abcde", "give 2 to 4 characters"),
        (WHOLE, "11", "give a whole number, 1 to 10"),
        (WHOLE, "1.5", "give a whole number"),
        (FormField("x", "number"), "nan", "give a number"),
        (FormField("x", "number"), "1e999", "give a number"),
        (FormField("x", "boolean"), "maybe", "answer yes or no"),
        (CHOICE, "4", "choose from Red, Blue, Two"),
        (CHOICES, "Red, Blue, Two", "give several of Red, Blue, Two, 1 to 2 of them"),
        (FormField("x", "text", format="email"), "a b@c", "give an e-mail address"),
        (FormField("x", "text", format="uri"), "example", "give an address such as https://example.org"),
        (FormField("x", "text", format="date"), "2023-02-29", "give a date, YYYY-MM-DD"),
        (FormField("x", "text", format="date-time"), "2023-02-28", "give a date and time, YYYY-MM-DD HH:MM"),
    ],
)  # fmt: skip
def test_invalid_typed_text_of_a_form_field_is_refused_with_a_reason(
    field: FormField, typed: str, why: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        parse_field(field, typed)


def test_typed_moment_without_an_offset_gets_the_local_offset() -> None:
    value = parse_field(FormField("x", "text", format="date-time"), "2024-02-29 10:00")

    assert str(value).startswith("2024-02-29T10:00:00")
    assert str(value)[19] in "+-"


def test_values_from_other_clients_are_checked_like_typed_values() -> None:
    form = Form("shop", "?", (TEXT, FormField("y", "boolean", required=True)))

    assert problems_in(form, {"x": "abc", "y": True}) == {}
    assert problems_in(form, {"x": 3, "z": 1}) == {
        "x": "give 2 to 4 characters", "y": "it is needed", "z": "the form has no such field",
    }  # fmt: skip
    with pytest.raises(ValueError, match="it is needed"):
        parse_answer(form, FormAnswer("accept", {"x": "abc"}).encode())
    assert parse_answer(form, FormAnswer("decline", {"x": 1}).encode()) == FormAnswer(
        "decline"
    )


def test_form_values_are_displayed_by_their_labels() -> None:
    assert shown_value(CHOICES, ["r", "b"]) == "Red, Blue"
    assert shown_value(FormField("x", "boolean"), False) == "no"


def test_the_hint_of_a_form_field_names_a_bound_but_not_a_minimum_of_zero() -> None:
    assert field_hint(FormField("x", "text", low=0)) == ""
    assert field_hint(FormField("x", "number", high=1.5)) == "a number, 1.5 or less"


def test_form_schema_for_other_clients_has_the_same_rules() -> None:
    form = Form(
        "shop", "?", (WHOLE, FormField("y", "boolean", default=False, required=True))
    )

    assert as_schema(form) == {
        "type": "object",
        "properties": {
            "x": {"type": "integer", "minimum": 1, "maximum": 10},
            "y": {"type": "boolean", "default": False},
        },
        "required": ["y"],
    }
