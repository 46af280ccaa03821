"""Checks lesson 18: a second agent is described, which has fewer tools."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_AREA_TEXT = "def area(a, b):\n    return a * b\n"
_LESSON_REPLIES = (
    call("task", agent="reviewer", prompt="Review area.py."),
    call("write_file", path="test_area.py", content="x = 1\n"),
    ModelReply("I may only read. area.py has no test."),
    ModelReply("The reviewer misses a test."),
)
LESSON_DEMO = Demo(
    _LESSON_REPLIES,
    words=("Have", "area.py", "reviewed"),
    files={"area.py": _AREA_TEXT},
)


def check(workshop: Workshop) -> None:
    """Check the user's agent, the tools of the reviewer, and a call that it may not make."""
    workshop.write("area.py", _AREA_TEXT)
    run = workshop.run(*_LESSON_REPLIES, words=["Have", "area.py", "reviewed"])
    first = str(run.messages(0)[0].get("content"))
    expect(
        "You review code" not in first,
        "The reviewer works for the user. The main agent should.",
        "One parameter of Agent says which agent works.",
        "Leave it out: the main agent is the default.",
        'Agent(model="lesson/scripted", mode="accept-edits", agents=[reviewer])',
    )
    expect(
        len(run.requests) == 4
        and "You review code" in str(run.messages(1)[0].get("content")),
        f"The main agent should give the reviewer a task. There were {len(run.requests)} requests.",
        "The main agent must know the reviewer.",
        "agents=[…] adds agents that can get tasks.",
        "agents=[reviewer]",
    )
    tools = {tool["function"]["name"] for tool in run.requests[1].get("tools", [])}
    expect(
        "read_file" in tools and "write_file" not in tools and "bash" not in tools,
        f"The reviewer should have only tools that read, but has {quote(', '.join(sorted(tools)))}.",
        "A Profile names its tools.",
        "tools is a tuple of names.",
        'tools=("read_file", "list_files"),',
    )
    expect(
        workshop.read("test_area.py") is None,
        "The reviewer wrote test_area.py.",
        "A tool that it does not have cannot be called.",
        "write_file must not be among its tools.",
        'tools=("read_file", "list_files"),',
    )
