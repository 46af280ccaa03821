"""Checks lesson 7: the program can undo what a turn has changed in files."""

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
    run.expect_no_errors()
    expect(
        len(run.requests) == 2,
        "/undo was sent to the model.",
        "It is a command for your program, like /new.",
        "Compare the text before it becomes a message.",
        'elif text == "/undo":\n    undo()',
    )
    undone = run.output.rpartition("Done.")[2]
    expect(
        "nothing to undo" not in undone.lower(),
        "A turn wrote notes.txt, but /undo says that there is nothing to undo.",
        "What a file contained must be saved before it is written.",
        "run_tool is the place through which all calls go: save it there.",
        'if name == "write_file":\n    save_old_content(arguments["path"])',
    )
    expect(
        "notes.txt" in undone,
        f"/undo should print which files it restored, but printed {quote(undone)}.",
        "Is undo() written? It takes the last dictionary of old_contents that is not empty.",
        "Restore each file in it, and print their names.",
        "files = old_contents.pop()\nfor path, content in files.items():\n    …\nprint(f\"Restored {', '.join(files)}.\")",
    )
    expect(
        workshop.read("notes.txt") == "first",
        f"After /undo notes.txt should contain 'first', but has {workshop.read('notes.txt')!r}.",
        "save_old_content reads a file before it is written, and undo() writes it back.",
        "Print what old_contents has when /undo begins. Is it the old content?",
        "for path, content in files.items():\n    Path(path).write_text(content)",
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
