"""Checks lesson 14: the program decides which calls are allowed."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("write_file", path="notes.md", content="one line\n"),
        call("write_file", path="notes.py", content="print(1)\n"),
        ModelReply("notes.md is written. notes.py was refused."),
    ),
    words=("Write", "notes.md", "and", "notes.py"),
)


def check(workshop: Workshop) -> None:
    """Check the decision on a Markdown file, another file and a command, and the output."""
    run = workshop.run(
        call("write_file", path="a.md", content="x"),
        call("write_file", path="b.py", content="x"),
        call("bash", command="touch c.md"),
        ModelReply("Done."),
        words=["Go"],
    )
    expect(
        workshop.read("a.md") == "x",
        "a.md should be written, but it is not there.",
        "approve returns True to allow a call.",
        'Look at question.tool and question.arguments["path"].',
        'if question.tool == "write_file" and question.arguments["path"].endswith(".md"):',
    )
    expect(
        workshop.read("b.py") is None and workshop.read("c.md") is None,
        "b.py and the command should be refused, but they were not.",
        "Only write_file with a path that ends with .md is allowed.",
        "A command has no path: look at the tool first.",
        'return "Only Markdown files may be written."',
    )
    refusal = str(run.messages(2)[-1].get("content"))
    expect(
        "Only Markdown files may be written" in refusal,
        f"The model should read why b.py was refused. It read {quote(refusal)}.",
        "A text is a refusal with a reason.",
        "Return the sentence in place of False.",
        'return "Only Markdown files may be written."',
    )
    expect(
        "no rule allows write_file" in run.output and "bash" in run.output,
        f"Each question should be printed, with its reason. Printed: {quote(run.output)}.",
        "approve is called for each question.",
        "A question has a tool and a reason.",
        'print(f"{question.tool}: {question.reason}")',
    )
    expect(
        "written: a.md" in run.output,
        f"The last line should be 'written: a.md'. Printed: {quote(run.output)}.",
        "The result knows which files were changed.",
        "result.files is a sequence of paths.",
        'print("written:", *result.files)',
    )
