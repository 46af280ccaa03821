"""Lets a program allow or refuse the calls that no rule covers, instead of asking a user."""

from refold import Agent, Question


async def approve(question: Question) -> bool | str:
    print(f"{question.tool} {question.arguments}: {question.reason}")
    if question.tool == "write_file" and question.arguments["path"].endswith(".md"):
        return True
    return "Only Markdown files may be written."  # the model reads the reason


agent = Agent(mode="default", approve=approve)
result = agent.run("Write a file notes.md with one line, and then notes.py.")
print(list(result.files))
