"""A form of an MCP server at a terminal: filled in by number, checked at once, sent by Enter."""

import io
from collections.abc import Mapping

import anyio
import pytest

from refold.console.capabilities import TerminalCapabilities
from refold.console.form_prompt import FormPrompt, answer_line
from refold.console.printer import Printer
from refold.console.reader import Key
from refold.values.display import Form, FormAnswer, FormField, FormOption, FormValue
from refold.views.question_keys import Menu
from refold.views.styled import Line, plain_text
from tests.terminal.test_conversation import Typed, Typist

FORM = Form(
    "shop",
    "Your order?",
    (
        FormField("name", "text", title="Name", required=True, low=2),
        FormField("many", "integer", default=2, low=1, high=10),
        FormField(
            "size",
            "choice",
            required=True,
            options=(FormOption("s", "Small"), FormOption("l")),
        ),
        FormField("gift", "boolean"),
    ),
)
PAGE = Form("pay", "Sign in.", url="https://pay.example/in")


def fill_in(form: Form, *typed: Typed) -> tuple[FormAnswer | None, list[str]]:
    """Return the answer, and what stands on the screen."""
    out, typist = io.StringIO(), Typist(*typed)

    async def choose(menu: Menu, prompt: Line) -> str | Key:
        answer = await typist.choose(menu, prompt)
        assert isinstance(answer, str | Key)
        return answer

    prompt = FormPrompt(form, Printer(out, TerminalCapabilities()), typist, choose)
    return anyio.run(prompt.ask), [*out.getvalue().splitlines(), *typist.asked]


@pytest.mark.parametrize(
    ("typed", "content"),
    [
        (("1=Ann", "3=Small", ""), {"name": "Ann", "many": 2, "size": "s"}),
        (("", "A", "Ann", "2", ""), {"name": "Ann", "many": 2, "size": "l"}),  # walks through
        (("1", "Ann", "3: l", "2=", "4=yes", ""), {"name": "Ann", "size": "l", "gift": True}),
        (("2=11", "5=x", "what", "1=Ann", "3=l", ""), {"name": "Ann", "many": 2, "size": "l"}),
        (("", Key.ESC, "1=Ann", "3=l", ""), {"name": "Ann", "many": 2, "size": "l"}),
    ],
)  # fmt: skip
def test_form_is_sent_when_all_required_fields_are_valid(
    typed: tuple[Typed, ...], content: Mapping[str, FormValue]
) -> None:
    answer, _ = fill_in(FORM, *typed)

    assert answer == FormAnswer("accept", dict(content))


def test_form_shows_each_field_with_the_values_it_accepts() -> None:
    _, rows = fill_in(FORM, Key.ESC)

    assert rows[:7] == [
        "? The MCP server shop asks",
        "  Your order?",
        "   1 Name*: -  (2 or more characters)",
        "   2 many: 2  (a whole number, 1 to 10)",
        "   3 size*: -  (one of Small, l)",
        "   4 gift: -  (yes or no)",
        "  * is needed",
    ]


def test_an_invalid_value_is_refused_when_it_is_entered() -> None:
    _, rows = fill_in(FORM, "2=11", "9", Key.ESC)

    assert "many: give a whole number, 1 to 10" in rows
    assert "'9' is not a field: type its number, 1 to 4" in rows


@pytest.mark.parametrize(
    ("key", "answer"),
    [("d", FormAnswer("decline")), (Key.ESC, FormAnswer("cancel")), (Key.CTRL_C, None)],
)
def test_declining_cancelling_and_stopping_a_form_give_different_answers(
    key: Typed, answer: FormAnswer | None
) -> None:
    assert fill_in(FORM, "1=Ann", key)[0] == answer


@pytest.mark.parametrize(
    ("key", "answer"),
    [("c", FormAnswer("accept")), ("n", FormAnswer("decline")), (Key.ESC, FormAnswer("cancel"))],
)  # fmt: skip
def test_a_page_that_an_mcp_server_asks_to_open_is_shown_with_its_host(
    key: Typed, answer: FormAnswer
) -> None:
    result, rows = fill_in(PAGE, key)

    assert result == answer
    assert rows[:4] == [
        "? The MCP server pay asks you to open a page",
        "  Sign in.",
        "  https://pay.example/in",
        "  at pay.example",
    ]


def test_form_that_cannot_be_shown_cannot_be_accepted() -> None:
    answer, rows = fill_in(Form("shop", "?", problem="it has 101 fields"), "o", "c", "n")

    assert answer == FormAnswer("decline")
    assert "  This cannot be shown: it has 101 fields." in rows


def test_the_answer_to_a_form_is_summarized_in_one_line() -> None:
    assert answer_line(FORM, FormAnswer("accept", {"size": "s", "gift": False})) == (
        "sent: size: Small, gift: no"
    )
    assert (
        plain_text([(("plain", answer_line(FORM, FormAnswer("decline"))),)]) == "declined"
    )
