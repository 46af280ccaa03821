"""A server that asks for a call of the user's model: the user decides, pays and is not flooded."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.client.questions import Question
from refold.journal.events.kinds import Ended, Reserved, Settled
from tests.mcp.test_mcp_sessions import Place, echo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Talk:
    """A session with one call of a server, and a user who gives the same answer to each
    question.
    """

    def __init__(self, place: Place, mode: str, *answers: str, **options: Any) -> None:
        place.servers(s=place.fake(mode))
        place.connect_servers()
        self.questions, self._answers = list[str](), answers
        lines = options.pop("lines", ("The model says this.",))
        agent = place.agent(echo(), *lines, "Done.", approve=self._answer, **options)
        self.provider: Any = agent.provider

        async def use_session() -> list[Any]:
            async with agent.session() as session:
                await session.run("Go.")
                return [entry.event for entry in await session.reports.entries()]

        self.events = anyio.run(use_session)

    async def _answer(self, question: Question) -> list[str]:
        self.questions += [ask.question for ask in question.asks]
        position = min(len(self.questions), len(self._answers)) - 1
        return [self._answers[position] for _ in question.asks]

    def events_of_kind(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def end(self) -> Ended:
        """Return the end of the call of the server's tool."""
        (result,) = [e for e in self.events_of_kind(Ended) if ".ask" not in e.call_id]
        return result

    @property
    def replies(self) -> list[dict[str, Any]]:
        """Return the replies that the server got, which its tool returns."""
        return json.loads(self.end.text)


def test_sampling_shows_the_user_the_request_and_returns_the_response(
    place: Place,
) -> None:
    conversation = Talk(place, "sample", "allow")

    (question,) = conversation.questions
    assert question == (
        "The MCP server s asks for a call of your model, which you pay for, with a response of "
        "at most 300 tokens that it gets:\n"
        "  | system: Be brief.\n"
        "  | user: What is two and two?\n"
        "  | user: [image left out]"
    )
    (reply,) = conversation.replies
    assert reply["result"]["content"] == {"type": "text", "text": "The model says this."}
    assert reply["result"]["role"] == "assistant"
    (result,) = [
        request for request in conversation.provider.heard if request.system == "Be brief."
    ]
    assert (result.tools, result.max_output) == ((), 300)


def test_the_cost_of_sampling_is_reserved_and_settled_in_the_session(place: Place) -> None:
    conversation = Talk(place, "sample", "allow")

    (reserved,), (settled,) = (
        conversation.events_of_kind(Reserved),
        conversation.events_of_kind(Settled),
    )
    assert reserved.purpose == "sampling"
    assert (settled.failed, settled.usage is not None) == ("", True)


def test_refusing_one_sampling_request_refuses_all_others_of_the_call(
    place: Place,
) -> None:
    conversation = Talk(place, "sampling", "refuse")

    assert len(conversation.questions) == 1
    assert conversation.events_of_kind(Reserved) == []
    assert conversation.end.text.endswith(
        "it asked for more than 40 model calls, and was stopped."
    )


def test_an_answer_that_was_not_offered_allows_no_sampling(place: Place) -> None:
    conversation = Talk(place, "sample", "maybe later")

    assert conversation.events_of_kind(Reserved) == []
    assert conversation.replies[0]["error"]["code"] == -1


def test_one_answer_can_allow_all_sampling_requests_of_a_call(place: Place) -> None:
    lines = [f"Answer {n}." for n in range(20)]
    conversation = Talk(place, "sampling", "allow for this tool call", lines=lines)

    assert len(conversation.questions) == 1
    assert len(conversation.events_of_kind(Reserved)) == 20


def test_a_call_with_endless_sampling_requests_is_stopped_with_the_reason(
    place: Place,
) -> None:
    conversation = Talk(
        place, "sampling-endless", "allow for this tool call", lines=["A."] * 20
    )

    assert conversation.end.outcome == "failed"
    assert conversation.end.text == (
        "The MCP server s failed: it asked for more than 40 model calls, and was stopped."
    )
    assert len(conversation.events_of_kind(Reserved)) == 20


def test_sampling_is_refused_when_the_budget_is_used_up(place: Place) -> None:
    conversation = Talk(place, "sample", "allow", settings={"budget.calls": 1}, lines=())

    assert (
        "the budget of this turn is used up" in conversation.replies[0]["error"]["message"]
    )


@pytest.mark.parametrize(
    ("mode", "words"),
    [("sample-tools", "has no tools here"), ("sample-long", "longer than 100,000")],
)
def test_an_unsupported_sampling_request_is_refused_without_a_question(
    place: Place, mode: str, words: str
) -> None:
    conversation = Talk(place, mode, "allow", lines=())

    assert conversation.questions == []
    assert words in conversation.replies[0]["error"]["message"]


def test_every_line_of_a_sampling_request_is_marked_as_text_of_the_server(
    place: Place,
) -> None:
    conversation = Talk(place, "sample-forged", "refuse", lines=())

    head, *lines = conversation.questions[0].splitlines()
    assert head.startswith("The MCP server s asks")
    assert all(line.startswith("  | ") for line in lines[:-1])
    assert lines[-1].startswith("  (and ")


def test_sampling_is_refused_without_a_user(place: Place) -> None:
    place.servers(s=place.fake("sample"))
    place.connect_servers()

    (end,) = place.turns(place.agent(echo(), "Done."), "Go.")

    (reply,) = json.loads(end.text)
    assert reply["error"]["message"] == (
        "Sampling refused: There is no user to ask in this session."
    )
