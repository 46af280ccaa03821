"""Reviews several files at the same time, each in a session whose answer is structured data."""

import sys
from pathlib import Path

import anyio

from refold import Agent

SCHEMA = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "risk": {"enum": ["low", "high"]}},
    "required": ["summary", "risk"],
}


async def review(agent: Agent, name: str, text: str) -> None:
    async with agent.session() as session:
        result = await session.run(f"Review {name}.\n\n{text}")
    print(f"{name}: {result.data or result.reason}")


async def main(texts: dict[Path, str]) -> None:
    agent = Agent(builtin=False, schema=SCHEMA, settings={"budget.tokens": 20_000})
    async with anyio.create_task_group() as tasks:
        for path in texts:
            tasks.start_soon(review, agent, path.name, texts[path])


if __name__ == "__main__":
    paths = [Path(name) for name in sys.argv[1:]] or [Path(__file__)]
    anyio.run(main, {path: path.read_text("utf-8") for path in paths})
