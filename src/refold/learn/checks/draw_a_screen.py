"""Checks lesson 19: the program displays what a session does."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("read_file", path="yesterday.md"),
        call("write_file", path="today.md", content="milk\n"),
        ModelReply("There were no notes of yesterday, so I began new ones."),
    ),
    words=("Note:", "milk"),
)


def check(workshop: Workshop) -> None:
    """Check how a failed call, a successful call and the text are displayed."""
    run = workshop.run(
        call("read_file", path="gone.txt"),
        call("write_file", path="new.txt", content="x"),
        ModelReply("Both done."),
        words=["Go"],
    )
    rows = run.output.splitlines()
    expect(
        any("write_file" in row for row in rows),
        f"No line names write_file. Printed: {quote(run.output)}.",
        "Each call ends with an event Ended.",
        "Its name is in the event ModelAnswered before it.",
        "names[part.id] = part.name, and later names[ended.call_id]",
    )
    expect(
        any(row.startswith("✓ write_file: Created new.txt") for row in rows),
        f"write_file worked: '✓ write_file: Created new.txt, …'. Printed: {quote(run.output)}.",
        "The line has a mark, the tool, a colon, and the first line of the result.",
        "ended.text is what the model read.",
        'print(f"{mark} {names[ended.call_id]}: {ended.text.splitlines()[0]}")',
    )
    expect(
        any(row.startswith("✗ read_file: ") for row in rows),
        f"read_file failed: its line should begin with '✗ read_file: '. Printed: {quote(run.output)}.",
        "Not each call works.",
        "ended.outcome is 'done' if it did.",
        'mark = "✓" if ended.outcome == "done" else "✗"',
    )
    expect(
        "Both done." in run.output,
        f"The text of the answer should still be shown. Printed: {quote(run.output)}.",
        "Keep the case TextCame.",
        "Live news and events come in the same stream.",
        'case TextCame(text):\n    print(text, end="", flush=True)',
    )
