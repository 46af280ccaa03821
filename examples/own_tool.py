"""Defines a tool as a function. The model reads its docstring and its parameters."""

from collections.abc import Mapping

from refold import Agent, Effect, tool

STOCK = {"apples": 12, "pears": 0}


@tool(Effect.LOOK)
async def count(fruit: str, *, stock: Mapping[str, int]) -> str:
    """Count how many pieces of a fruit are in stock."""
    return f"{stock.get(fruit, 0)} {fruit}"


# Parameters after the `*` come from `dependencies`; the model does not see them.
agent = Agent(tools=[count], builtin=False, dependencies={"stock": STOCK})
print(agent.run("Can I sell three apples?").text)
