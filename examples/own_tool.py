"""A tool is a function: its docstring and parameters are what the model reads."""

from collections.abc import Mapping

from refold import Agent, Effect, tool

STOCK = {"apples": 12, "pears": 0}


@tool(Effect.LOOK)
async def count(fruit: str, *, stock: Mapping[str, int]) -> str:
    """Count how many pieces of a fruit are in stock."""
    return f"{stock.get(fruit, 0)} {fruit}"


# What stands after the `*` comes from `dependencies`; the model does not see it.
agent = Agent(tools=[count], builtin=False, dependencies={"stock": STOCK})
print(agent.run("Can I sell three apples?").text)
