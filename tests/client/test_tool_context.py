"""A tool with a `Context` can read the state of the session and ask the user."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
import pytest

from refold import Agent, Context, Effect, Question, tool
from refold.testing.providers import ScriptedProvider


@tool(Effect.LOOK)
async def where(name: str, context: Context) -> str:
    """Say where the session works."""
    context.progress("looking\n")
    return f"{name} in {context.directory}, {context.session_id}, {context.call_id}"


@tool(Effect.LOOK)
async def paint(what: str, *, context: Context) -> str:
    """Paint something in the colour that the user wants."""
    first = await context.ask("Which colour?", ["red", "blue"])
    second = await context.ask("Matt?")
    return f"{what} is {first} and {second}"


def run(agent: Agent) -> tuple[str, list[str]]:
    """Return the id of the session, and the results that the model read."""

    async def main() -> tuple[str, list[str]]:
        async with agent.session() as session:
            await session.run("Go.")
            calls = [call for m in session.snapshot.messages for call in m.calls]
            return session.id, [call.result or "" for call in calls]

    return anyio.run(main)


def test_the_context_parameter_of_a_tool_is_injected_and_not_in_the_schema(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider([("where", '{"name": "we"}')], "Done.")
    agent = Agent(provider=provider, tools=[where], builtin=False, directory=tmp_path)

    id_, (text,) = run(agent)

    assert text.startswith(f"we in {tmp_path.resolve()}, {id_}, call-")
    schema = msgspec.json.decode(where.spec.parameters)
    assert list(schema["properties"]) == ["name"]


def test_a_tool_can_ask_the_user_more_than_once(tmp_path: Path) -> None:
    asked_questions = list[tuple[str, list[str]]]()

    async def approve(question: Question) -> Sequence[str]:
        (one,) = question.asks
        asked_questions.append((one.question, [option.label for option in one.options]))
        return ["blue" if one.options else "yes"]

    provider = ScriptedProvider([("paint", '{"what": "The door"}')], "Done.")
    agent = Agent(provider=provider, tools=[paint], approve=approve, directory=tmp_path)

    _, (text,) = run(agent)

    assert text == "The door is blue and yes"
    assert asked_questions == [("Which colour?", ["red", "blue"]), ("Matt?", [])]


@pytest.mark.parametrize("builtin", [True, False])
def test_a_tool_that_asks_fails_without_an_approve_function(
    tmp_path: Path, builtin: bool
) -> None:
    provider = ScriptedProvider([("paint", '{"what": "The door"}')], "Done.")
    agent = Agent(provider=provider, tools=[paint], builtin=builtin, directory=tmp_path)

    _, (text,) = run(agent)

    assert text == "There is no user to ask in this session."
