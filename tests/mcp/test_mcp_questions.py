"""What a server asks becomes questions to the user, who can decline each."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.errors import ToolFailed
from refold.tools.contract import Context
from refold.values.display import AskedQuestion

pytestmark = pytest.mark.slow  # the types of the protocol take long to import
FORM = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "many": {"type": "integer", "description": "How many?"},
        "now": {"type": "boolean"},
        "note": {"type": "string"},
    },
    "required": ["colour", "many", "now"],
}


class User:
    """Answers in this order, and notes what was asked."""

    def __init__(self, *answers: str) -> None:
        self._answers: Iterator[str] = iter(answers)
        self.asked = list[tuple[str, list[str]]]()

    async def __call__(self, asking: AskedQuestion) -> str:
        self.asked.append((asking.question, [each.label for each in asking.options]))
        answer = next(self._answers, None)
        if answer is None:
            raise ToolFailed("There is no user to ask in this session.")
        return answer


def elicit(user: User, params: object) -> tuple[str, object]:
    from refold.mcp.questions import elicited

    context = Context(Path("/"), "session", "call", lambda _: None, user)
    found = anyio.run(elicited, "shop", params, context)
    return found.action, found.content


def form() -> object:
    from mcp_types import ElicitRequestFormParams

    return ElicitRequestFormParams.model_validate(
        {"message": "Your order?", "requestedSchema": FORM}
    )


def test_a_form_is_asked_field_by_field_and_says_which_server_asks() -> None:
    user = User("answer", "blue", "3", "yes", "skip")

    assert elicit(user, form()) == ("accept", {"colour": "blue", "many": 3, "now": True})
    assert user.asked == [
        (
            "The MCP server shop asks: Your order? (colour, many, now, note)",
            ["answer", "decline"],
        ),
        ("shop, colour: colour", ["red", "blue"]),
        ("shop, many: How many?", []),
        ("shop, now: now", ["yes", "no"]),
        ("shop, note: note", ["skip"]),
    ]


@pytest.mark.parametrize("answers", [("decline",), (), ("answer", "blue")])
def test_a_form_is_declined_by_the_user_or_where_none_is_there(
    answers: tuple[str, ...],
) -> None:
    assert elicit(User(*answers), form()) == ("decline", None)


@pytest.mark.parametrize(("answer", "action"), [("done", "accept"), ("decline", "decline")])
def test_an_address_is_shown_and_not_opened(answer: str, action: str) -> None:
    from mcp_types import ElicitRequestURLParams

    user = User(answer)
    params = ElicitRequestURLParams(
        message="Sign in", url="https://x.example", elicitation_id="1"
    )

    assert elicit(user, params) == (action, None)
    assert "https://x.example" in user.asked[0][0]
