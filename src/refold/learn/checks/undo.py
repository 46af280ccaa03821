"""Step 7: the program can undo what a turn did to files."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("write_file", path="notes.txt", content="All gone.\n"),
        ModelReply("Your notes are tidy now."),
    ),
    typed=("Tidy my notes", "y", "/undo"),
    files={"notes.txt": "milk\nbread\n"},
)


def _write(path: str, content: str) -> ModelReply:
    return call("write_file", path=path, content=content)


def check(workshop: Workshop) -> None:
    """Check one file, two changes in a turn, a new file, two turns, and nothing to undo."""
    workshop.write("notes.txt", "first")
    run = workshop.run(
        _write("notes.txt", "second"), ModelReply("Done."), typed=["Go", "a", "/undo"]
    )
    expect(
        len(run.requests) == 2,
        "/undo was sent to the model.",
        "It is a command for your program, like /new.",
        "Compare the text before it becomes a message.",
        'elif text == "/undo":\n    undo()',
    )
    expect(
        workshop.read("notes.txt") == "first",
        f"After /undo notes.txt should contain 'first', but has {workshop.read('notes.txt')!r}.",
        "What a file contained must be saved before it is written.",
        "run_tool is the place through which all calls go: save it there.",
        'if name == "write_file":\n    save_old_content(arguments["path"])',
    )
    typed = ["Go", "a", "/undo"]
    workshop.run(
        _write("notes.txt", "second"),
        _write("notes.txt", "third"),
        ModelReply("Done."),
        typed=typed,
    )
    expect(
        workshop.read("notes.txt") == "first",
        f"A turn wrote notes.txt twice; /undo left {workshop.read('notes.txt')!r} and not 'first'.",
        "The second write must not replace what was saved before the first.",
        "Which method of a dictionary sets a value only if there is none?",
        "old_contents[-1].setdefault(path, …)",
    )
    workshop.run(_write("new.txt", "new"), ModelReply("Done."), typed=typed)
    expect(
        workshop.read("new.txt") is None,
        "A file that did not exist before should be gone after /undo.",
        "None can stand for: there was no file.",
        "Path.unlink deletes a file.",
        "if content is None:\n    Path(path).unlink(missing_ok=True)",
    )
    typed = ["One", "a", "Two", "Just talk", "/undo", "/undo", "/undo"]
    replies = (
        _write("notes.txt", "1"),
        ModelReply("."),
        _write("notes.txt", "2"),
        ModelReply("."),
        ModelReply("!"),
    )
    run = workshop.run(*replies, typed=typed)
    expect(
        workshop.read("notes.txt") == "first",
        f"Two turns wrote, three /undo left {workshop.read('notes.txt')!r} and not 'first'.",
        "Each /undo takes back one turn that changed files.",
        "A turn that changed no file is skipped.",
        "while old_contents: … files = old_contents.pop() … if files: … return",
    )
    expect(
        "nothing to undo" in run.output.lower(),
        f"The third /undo had nothing to do and should say so. Printed: {quote(run.output)}.",
        "Otherwise the user does not know what happened.",
        "What stands after the loop runs if no turn had files.",
        'print("There is nothing to undo.")',
    )
