"""Checks lesson 2: the program calls a tool for the model, and sends it the result."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("read_file", path="notes.txt"),
        ModelReply("You still have to buy milk and bread."),
    ),
    words=("What", "is", "in", "notes.txt?"),
    files={"notes.txt": "milk\nbread\n"},
)


def check(workshop: Workshop) -> None:
    """Check calls for an existing and for a missing file, and an answer without a call."""
    workshop.write("notes.txt", "seven apples\n")
    run = workshop.run(
        call("read_file", path="notes.txt"), ModelReply("Seven."), words=["How", "many?"]
    )
    tools = run.requests[0].get("tools") if run.requests else None
    expect(
        tools and "read_file" in str(tools),
        "The request does not tell the model of a tool 'read_file'.",
        "The model knows only the tools in the field 'tools' of the request.",
        "TOOL_SCHEMAS is that list. Where is the request made?",
        'request = {"model": "scripted", "messages": messages, "tools": TOOL_SCHEMAS}',
    )
    expect(
        len(run.requests) == 2,
        f"The model asked for the file, but got {len(run.requests) - 1} more requests, not one.",
        "The answer has a field 'tool_calls'. What happens if it is there?",
        "After the results, the model must be called again, with all messages.",
        'if "tool_calls" in answer:\n    answer = call_model(messages)',
    )
    result = str(run.messages(1)[-1].get("content"))
    expect(
        "seven apples" in result,
        f"notes.txt contains 'seven apples', but the result of the call was {quote(result)}.",
        "The arguments of a call are JSON text.",
        "json.loads(call['function']['arguments']) is a dictionary: {'path': …}.",
        'read_file(**json.loads(call["function"]["arguments"]))',
    )
    expect(
        "Seven." in run.output,
        f"The model ended with 'Seven.', but your program printed {quote(run.output)}.",
        "Print the last answer, not the first.",
        "The first answer had a call and no text.",
        "answer = call_model(messages), then print(answer['content'])",
    )
    _check_missing_file(workshop)
    run = workshop.run(ModelReply("Hello!"), words=["Hello"])
    expect(
        len(run.requests) == 1,
        "The model called no tool, but was called again.",
        "An answer without 'tool_calls' is the last one.",
        "The second request belongs under an `if`.",
        'if "tool_calls" in answer:',
    )


def _check_missing_file(workshop: Workshop) -> None:
    """Check that the model reads the error of a call."""
    run = workshop.run(
        call("read_file", path="gone.txt"),
        ModelReply("It is gone."),
        words=["Read", "gone.txt"],
    )
    result = str(run.messages(-1)[-1].get("content"))
    expect(
        len(run.requests) == 2 and "gone.txt" in result,
        f"There is no gone.txt. The model should have read so, but got {quote(result)}.",
        "An error is a result, too: the model can read it and try something else.",
        "Catch the exception in run_tool, and return its text.",
        'except Exception as error:\n    return f"Error: {error}"',
    )
