"""Checks lesson 21: two agents are declared in a file."""

from refold.learn.model_server import Json, ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_WRITE_REPLY = call("write_file", path="list.txt", content="milk\n")
LESSON_DEMO = Demo(
    (
        _WRITE_REPLY,
        call("bash", command="cat list.txt"),
        ModelReply("Milk is on the list."),
    ),
    words=("clerk", "Add", "milk"),
)


def check(workshop: Workshop) -> None:
    """Check tools, write access and limit of "clerk", and tools and prompt of "auditor"."""
    reads = call("read_file", path="list.txt")
    run = workshop.run(
        _WRITE_REPLY,
        reads,
        reads,
        reads,
        ModelReply("Milk is on it."),
        words=["clerk", "Go"],
    )
    tools = _tools(run.requests[0]) if run.requests else set[str]()
    expect(
        tools == {"read_file", "write_file"},
        f"The clerk should have read_file and write_file, but has {quote(', '.join(sorted(tools)))}.",
        "A key of the agent lists its tools.",
        "Short names are good enough: read and write.",
        'tools = ["read", "write"]',
    )
    expect(
        workshop.read("list.txt") == "milk\n",
        f"The clerk should write list.txt without being asked. Its answer was {quote(run.output)}.",
        "Where there is no user, what would ask is refused.",
        "auto_tools lets the listed tools run, and no others.",
        "auto_tools = true",
    )
    expect(
        _ends_after_three(run.requests),
        f"After three answers only a summary is asked for, but there were {len(run.requests)} requests.",
        "A key limits the answers of one turn.",
        "It is called max_iterations.",
        "max_iterations = 3",
    )
    workshop.write("list.txt", "bread\n")
    run = workshop.run(_WRITE_REPLY, ModelReply("No."), words=["auditor", "Go"])
    tools = _tools(run.requests[0]) if run.requests else set[str]()
    expect(
        tools == {"read_file"} and workshop.read("list.txt") == "bread\n",
        f"The auditor should have only read_file, but has {quote(', '.join(sorted(tools)))}. "
        f"{quote(run.errors)}",
        "A second table is a second agent.",
        "Its own list of tools replaces that of the clerk.",
        '[agents.auditor]\nextends = "clerk"\ntools = ["read"]',
    )
    expect(
        "You keep a shopping list" in str(run.requests[0]["messages"]),
        "The auditor should have the prompt of the clerk.",
        "It needs no prompt of its own.",
        "extends names the agent whose keys it takes.",
        'extends = "clerk"',
    )


def _tools(request: Json) -> set[str]:
    return {tool["function"]["name"] for tool in request.get("tools", [])}


def _ends_after_three(requests: tuple[Json, ...]) -> bool:
    """Return whether the fourth request is the last, and permits no calls."""
    return len(requests) == 4 and requests[-1].get("tool_choice") == "none"
