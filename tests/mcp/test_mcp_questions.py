"""What a server asks is put to the user as one form, and only what fits the form goes back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.errors import ToolFailed
from refold.mcp.channel import Elicitation
from refold.tools.contract import Context
from refold.values.display import AskedQuestion, Form, FormAction, FormAnswer, FormValue
from refold.values.forms import host_of, host_warning
from tests.mcp.fake_server import FORM

pytestmark = pytest.mark.slow  # the types of the protocol take long to import


class User:
    """Gives these answers in this order, and records the forms."""

    def __init__(self, *answers: str) -> None:
        self._answers: Iterator[str] = iter(answers)
        self.forms = list[Form]()

    async def __call__(self, question: AskedQuestion) -> str:
        assert isinstance(question.form, Form)
        self.forms.append(question.form)
        answer = next(self._answers, None)
        if answer is None:
            raise ToolFailed("There is no user to ask in this session.")
        return answer


def accept(**content: FormValue) -> str:
    return FormAnswer("accept", content).encode()


def elicit(user: User, params: Any) -> tuple[str, object, str]:
    from refold.mcp.questions import ask

    context = Context(Path("/"), "session", "call", lambda _: None, user)
    question = Elicitation("shop", params, lambda _: None)
    result = anyio.run(ask, question, context)
    return result.result.action, result.result.content, result.problem


def form(schema: object = FORM) -> Any:
    from mcp_types import ElicitRequestFormParams

    return ElicitRequestFormParams.model_validate(
        {"message": "Your order?", "requestedSchema": schema}
    )


def page(url: str) -> Any:
    from mcp_types import ElicitRequestURLParams

    return ElicitRequestURLParams(message="Sign in", url=url, elicitation_id="1")


def test_a_form_of_thirteen_fields_is_asked_as_one_question() -> None:
    content: dict[str, FormValue] = {
        "name": "Ann", "mail": "ann@x.example", "colour": "#00f", "extras": ["bow", "card"],
        "pickup": "2026-01-02T10:00:00Z", "gift": True, "weight": 1.5,
    }  # fmt: skip
    user = User(accept(**content))

    assert elicit(user, form()) == ("accept", content, "")
    assert [f.name for f in user.forms[0].fields] == list(FORM["properties"])
    assert user.forms[0].defaults == {"many": 2, "gift": False, "extras": ["bow"]}


def test_a_form_is_asked_again_until_the_answer_matches_its_fields() -> None:
    good = accept(name="Ann", mail="ann@x.example", colour="#f00")
    user = User(
        accept(name="Ann", mail="ann", colour="#f00"),
        accept(name="Ann", mail="ann@x.example"),
        accept(name="Ann", mail="ann@x.example", colour="#f00", many=11),
        "anything",
        good,
    )

    assert elicit(user, form())[0] == "accept"
    assert len(user.forms) == 5


@pytest.mark.parametrize(
    ("answer", "action"),
    [(FormAnswer("decline").encode(), "decline"), (FormAnswer("cancel").encode(), "cancel"),
     ("", "cancel"), ("(no answer)", "cancel")],
)  # fmt: skip
def test_declining_and_cancelling_a_form_send_different_actions(
    answer: str, action: FormAction
) -> None:
    assert elicit(User(answer), form()) == (action, None, "")


def test_without_a_user_a_form_is_cancelled_with_the_reason() -> None:
    action, content, why = elicit(User(), form())

    assert (action, content) == ("cancel", None)
    assert why == "There is no user to ask in this session."


def test_choices_of_an_integer_field_are_sent_as_numbers() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2]}}}

    assert elicit(User(accept(n="2")), form(schema)) == ("accept", {"n": 2}, "")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "object", "properties": {"x": {"type": "object"}}, "required": ["x"]},
         "the field 'x' is of the type 'object', which no form has"),
        ({"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(101)}},
         "it has 101 fields, at most 100 are shown"),
        ({"type": "object", "properties": {"x": {"enum": []}}, "required": ["x"]},
         "the field 'x' has nothing to choose from"),
        ({"type": "object", "required": ["x"],
          "properties": {"x": {"enum": [str(n) for n in range(501)]}}},
         "the field 'x' has 501 choices, at most 500 are shown"),
    ],
)  # fmt: skip
def test_a_form_that_cannot_be_shown_can_be_declined_but_not_accepted(
    schema: object, problem: str
) -> None:
    user = User(accept(), FormAnswer("decline").encode())

    assert elicit(user, form(schema))[0] == "decline"  # it could not be accepted
    assert user.forms[0].problem == problem


@pytest.mark.parametrize("schema", [None, [], {"properties": []}, {"properties": {"x": 1}}])
def test_an_invalid_form_schema_becomes_a_form_without_fields(schema: object) -> None:
    from mcp_types import ElicitRequestFormParams

    user = User(accept())
    params = ElicitRequestFormParams.model_construct(message="?", requested_schema=schema)

    assert elicit(user, params) == ("accept", {}, "")
    assert user.forms[0].fields == ()


def test_invalid_defaults_of_form_fields_are_omitted() -> None:
    schema = {"type": "object", "properties": {
        "n": {"type": "integer", "maximum": 3, "default": 4},
        "s": {"type": "string", "enum": ["a"], "default": "b"},
        "t": {"type": "string", "default": "a\u202eb"},
    }}  # fmt: skip
    user = User(accept())

    elicit(user, form(schema))
    assert user.forms[0].defaults == {}


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_a_question_with_a_url_shows_the_host_of_the_url(action: FormAction) -> None:
    user = User(FormAnswer(action).encode())

    assert elicit(user, page("https://good.example@x.example:8/in")) == (action, None, "")
    assert host_of(user.forms[0]) == "x.example"


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https://a\u202eb/",
        "x" * 2000,
    ],
)
def test_a_question_with_an_invalid_url_cannot_be_accepted(url: str) -> None:
    user = User(accept(), FormAnswer("cancel").encode())

    assert elicit(user, page(url))[0] == "cancel"
    assert user.forms[0].problem


def test_a_host_with_lookalike_letters_is_shown_in_punycode_with_a_warning() -> None:
    user = User(FormAnswer("decline").encode())

    elicit(user, page("https://p\u0430ypal.example/"))
    assert host_of(user.forms[0]) == "xn--pypal-4ve.example"
    assert "look like others" in host_warning(user.forms[0])
