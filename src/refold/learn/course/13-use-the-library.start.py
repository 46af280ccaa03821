"""Ask refold from a program, and give it a tool."""

import sys

from refold import Agent, Effect, tool

TEMPERATURES = {"Oslo": -2, "Rome": 14}

agent = Agent(model="lesson/scripted")
result = agent.run(" ".join(sys.argv[1:]))
print(result.text)
