"""Checks lesson 3: the program calls the model and tools until the model is done."""

from refold.learn.model_server import ModelReply, RequestedCall
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("list_files"),
        call("read_file", path="notes.txt"),
        call("write_file", path="shopping.txt", content="bread\nmilk\n"),
        ModelReply("shopping.txt has your notes in alphabetical order."),
    ),
    words=("Sort", "my", "notes", "into", "shopping.txt"),
    files={"notes.txt": "milk\nbread\n"},
)


def check(workshop: Workshop) -> None:
    """Check three steps, two calls in one answer, an unknown tool, and the limit of steps."""
    workshop.write("notes.txt", "b\na\n")
    run = workshop.run(
        call("list_files"),
        ModelReply(calls=(
            RequestedCall("read_file", {"path": "notes.txt"}),
            RequestedCall("write_file", {"path": "sorted.txt", "content": "a\nb\n"}),
        )),
        ModelReply("Sorted."),
        words=["Sort", "my", "notes"],
    )  # fmt: skip
    expect(
        len(run.requests) == 3,
        f"The model needed 3 requests for its task, but got {len(run.requests)}.",
        "Continue until an answer has no calls.",
        "The call of the model belongs into the loop.",
        "for _ in range(MAX_STEPS):\n    answer = call_model(messages)\n    …",
    )
    expect(
        "notes.txt" in str(run.messages(1)[-1].get("content")),
        f"list_files should name notes.txt, but returned {quote(str(run.messages(1)[-1]))}.",
        "Path().iterdir() yields the files of the current folder.",
        "A result is text: join the names.",
        'return "\\n".join(sorted(path.name for path in Path().iterdir()))',
    )
    run.expect_no_errors()
    expect(
        workshop.read("sorted.txt") == "a\nb\n",
        f"sorted.txt should contain 'a\\nb\\n', but it has {workshop.read('sorted.txt')!r}.",
        "The second answer has two calls: run both.",
        "Path(path).write_text(content) writes a file.",
        'for call in answer["tool_calls"]:',
    )
    run = workshop.run(call("fly", height="9"), ModelReply("I cannot."), words=["Fly"])
    expect(
        "Error" in str(run.messages(-1)[-1].get("content")),
        "The model called the tool 'fly', which does not exist, and got no error.",
        "TOOLS[name] raises KeyError for a name that is not there.",
        "Look the tool up inside of `try`.",
        "try:\n    tool = TOOLS[call['function']['name']]",
    )
    _check_limit(workshop)


def _check_limit(workshop: Workshop) -> None:
    """Check that the program stops after ten steps, and says so."""
    run = workshop.run(*[call("list_files")] * 30, words=["Look", "for", "ever"])
    expect(
        len(run.requests) == 10,
        f"A model that never ends should be stopped after 10 steps. It got {len(run.requests)}.",
        "Every turn costs money. What if a model goes in circles?",
        "Count the steps: a `for` with a limit in place of `while True`.",
        "for _ in range(MAX_STEPS):",
    )
    expect(
        "10" in run.output,
        f"After 10 steps your program should say that it stopped. It printed {quote(run.output)}.",
        "Otherwise the user takes half of the work for all of it.",
        "What stands after the loop runs only if nothing was returned in it.",
        'return f"I stopped after {MAX_STEPS} steps."',
    )
