"""Decide in the program which calls may run."""

import sys

from refold import Agent, Question


async def approve(question: Question) -> bool | str:
    print(f"{question.tool}: {question.reason}")
    if question.tool == "write_file" and question.arguments["path"].endswith(".md"):
        return True
    return "Only Markdown files may be written."


agent = Agent(model="lesson/scripted", mode="default", approve=approve)
result = agent.run(" ".join(sys.argv[1:]))
print(result.text)
print("written:", *result.files)
