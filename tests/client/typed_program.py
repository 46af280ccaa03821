"""Uses the library as a user's program does, for the type checker. It is never run."""

from typing import assert_type

from refold import (
    Agent,
    Effect,
    Progress,
    Question,
    Reply,
    Result,
    Session,
    TextCame,
    Tool,
    Usage,
    tool,
)


@tool(Effect.LOOK)
async def weather(city: str, days: int = 1, *, stations: dict[str, str]) -> Reply:
    """Say what the weather is."""
    return Reply(f"rain in {city} for {days} days, says {stations[city]}")


async def approve(question: Question) -> bool | str:
    return question.tool == "bash" or "only bash"


async def converse(agent: Agent) -> Result:
    async with agent.session() as session:
        assert_type(session, Session)
        async with session.stream("Will it rain?") as frames:
            async for frame in frames:
                if isinstance(frame.item, TextCame | Progress):
                    assert_type(frame.item.text, str)
        assert_type(session.questions, tuple[Question, ...])
        assert_type(await session.interrupt("Never mind."), bool)
        await session.set_mode("accept-edits")
        return await session.continue_()


def main() -> None:
    assert_type(weather, Tool)
    agent = Agent(
        model="anthropic/claude-sonnet-5-5",
        tools=[weather],
        dependencies={"stations": {}},
        mode="default",
        approve=approve,
        settings={"limits.steps": 9},
    )
    result = agent.run("Will it rain?")
    assert_type(result.text, str)
    assert_type(result.cost, float | None)
    assert_type(result.usage, Usage)
    assert_type(result.denials, tuple[Question, ...])
