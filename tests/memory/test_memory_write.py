"""`memory_write` in a real session: only the user's words, and answers to questions."""

from pathlib import Path

import anyio
import pytest

from refold import Agent, Session
from refold.testing.providers import ScriptedProvider
from refold.tools.memory import memory_write
from refold.tools.plan import ask_user
from refold.values.messages import ToolResult
from tests.memory.workplace import Workplace


class InSession:
    """The notes of the session that is open at the moment."""

    def __init__(self, place: Workplace) -> None:
        self.place = place

    async def write(self, section: str, text: str, replaces: str) -> str:
        (session,) = self.place.remembering.home.sessions()
        notebook = self.place.remembering.notebook(session.id)
        return await notebook.write(section, text, replaces)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def results(session: Session) -> list[tuple[bool, str]]:
    parts = (p for s in session.view.conversation.messages for p in s.message.parts)
    return [(p.failed, p.text) for p in parts if isinstance(p, ToolResult)]


def run_calls(
    place: Workplace, text: str, *calls: tuple[str, str], picked: str = ""
) -> list[tuple[bool, str]]:
    """Make these calls one after the other, and return their results."""

    async def approve(_: object) -> list[str]:
        return [picked]

    agent = Agent(
        provider=ScriptedProvider(*[[call] for call in calls], "Done."),
        directory=place.directory,
        builtin=False,
        tools=[memory_write, ask_user],
        dependencies={"memory": InSession(place)},
        approve=approve,
    )

    async def run() -> list[tuple[bool, str]]:
        async with agent.session() as session:
            await session.run(text)
            return results(session)

    return anyio.run(run)


def test_memory_write_stores_a_statement_of_the_user(place: Workplace) -> None:
    call = '{"section": "person", "text": "Answer in German"}'

    result = run_calls(
        place, "Please answer in German from now on.", ("memory_write", call)
    )

    text = 'Remembered under Preferences: "Answer in German". Later sessions will see it.'
    assert result == [(False, text)]
    assert place.notes == [("Preferences", "Answer in German")]


def test_memory_write_of_other_text_needs_an_answer_of_the_user(
    place: Workplace,
) -> None:
    text = "Deploy with make release"
    call = f'{{"section": "facts", "text": "{text}"}}'
    asks = (
        '{"questions": [{"question": "How do you deploy?", "options": '
        f'[{{"label": "{text}"}}, {{"label": "By hand"}}]}}]}}'
    )

    result = run_calls(
        place, "Look at it.", ("memory_write", call), ("ask_user", asks), ("memory_write", call),
        picked=text,
    )  # fmt: skip

    assert [failed for failed, _ in result] == [True, False, False]
    assert "ask with ask_user" in result[0][1]
    assert place.notes == [("Project facts", text)]


def test_memory_write_replaces_the_note_that_it_names(place: Workplace) -> None:
    place.remembering.note("the port is 8080")
    call = '{"section": "facts", "text": "The port is 9090", "replaces": "8080"}'

    result = run_calls(place, "The port is 9090 now.", ("memory_write", call))

    assert [failed for failed, _ in result] == [False]
    assert place.notes == [("Project facts", "The port is 9090")]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ('{"section": "facts", "text": "  "}', "The note is empty"),
        ('{"section": "orders", "text": "Answer in German"}', "orders"),
        (
            '{"section": "facts", "text": "Answer in German", "replaces": "tea"}',
            "No note is 'tea'",
        ),
    ],
)
def test_an_invalid_memory_write_call_fails_with_the_reason(
    place: Workplace, call: str, why: str
) -> None:
    result = run_calls(place, "Answer in German.", ("memory_write", call))

    assert [failed for failed, _ in result] == [True]
    assert why in result[0][1]
    assert place.notes == []
