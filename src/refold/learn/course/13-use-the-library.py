"""Ask refold from a program, and give it a tool."""

import sys

from refold import Agent, Effect, ToolFailed, tool

TEMPERATURES = {"Oslo": -2, "Rome": 14}


@tool(Effect.LOOK)
def temperature(city: str) -> str:
    """The temperature in a city, in degrees Celsius."""
    if city not in TEMPERATURES:
        raise ToolFailed(f"There is no station in {city}. There is one in: Oslo, Rome.")
    return f"{TEMPERATURES[city]} degrees"


agent = Agent(model="lesson/scripted", tools=[temperature])
result = agent.run(" ".join(sys.argv[1:]))
print(result.text)
print(f"{result.outcome}, {result.usage.output} tokens written")
