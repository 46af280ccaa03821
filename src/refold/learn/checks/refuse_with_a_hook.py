"""Checks lesson 15: a hook refuses code until there is a test for it."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote


def _write(path: str) -> ModelReply:
    return call("write_file", path=path, content="x = 1\n")


LESSON_DEMO = Demo(
    (
        _write("sums.py"),
        _write("test_sums.py"),
        _write("sums.py"),
        ModelReply("First the test, then the code: both are there."),
    ),
    words=("Write", "a", "module", "sums"),
)


def check(workshop: Workshop) -> None:
    """Check code before and after its test exists, another file, and a call without a path."""
    run = workshop.run(
        _write("a.py"), _write("test_a.py"), _write("notes.md"), call("list_files"),
        ModelReply("Done."), words=["Go"],
    )  # fmt: skip
    expect(
        workshop.read("a.py") is None,
        "a.py was written, although there was no test_a.py.",
        "needs_tests must be a hook of the agent, for PreToolUse.",
        "It returns an object whose 'decision' is 'block'.",
        'return {"decision": "block", "reason": f"Write test_{name} first."}',
    )
    refusal = str(run.messages(1)[-1].get("content"))
    expect(
        "Write test_a.py first" in refusal,
        f"The model should read 'Write test_a.py first.', but read {quote(refusal)}.",
        "The reason is what the model reads.",
        "Make the sentence from the name of the file.",
        '"reason": f"Write test_{name} first."',
    )
    expect(
        workshop.read("test_a.py") is not None,
        "test_a.py should be written: a test needs no test.",
        "Which names begin with test_?",
        "Return None for them.",
        'if name.endswith(".py") and not name.startswith("test_") and …',
    )
    listed = str(run.messages(4)[-1].get("content"))
    expect(
        workshop.read("notes.md") is not None and "notes.md" in listed,
        f"Other files and calls without a path should work. Listing files gave {quote(listed)}.",
        "Not each tool has a path, and not each file is Python.",
        'event["tool_input"].get("path", "") is "" where there is none.',
        'name = Path(event["tool_input"].get("path", "")).name',
    )
    workshop.run(_write("a.py"), ModelReply("Done."), words=["Go"])
    expect(
        workshop.read("a.py") is not None,
        "test_a.py is there now, so a.py should be written, but it was refused.",
        "Look whether the test exists.",
        'Path(f"test_{name}").exists()',
        'if … and not Path(f"test_{name}").exists():',
    )
