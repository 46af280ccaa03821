"""Decide in the program which calls may run."""

import sys

from refold import Agent, Question


async def approve(question: Question) -> bool | str:
    return False


agent = Agent(model="lesson/scripted", mode="default", approve=approve)
result = agent.run(" ".join(sys.argv[1:]))
print(result.text)
