"""Checks lesson 26: statements about a file, with quotes, are stored by its content's hash."""

import json

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, expect, quote

_NOTES_TEXT = "LIMIT = 3\n\n\ndef is_full(notes):\n    return len(notes) >= LIMIT\n"


def _answer(*pairs: tuple[str, str]) -> ModelReply:
    """Return an answer of the model with statements, each a pair of text and quotation."""
    rows = [{"text": text, "quote": quoted} for text, quoted in pairs]
    return ModelReply(json.dumps({"statements": rows}))


_LESSON_ANSWER = _answer(
    ("Three notes are the limit.", "LIMIT = 3"),
    ("A full book has exactly the limit of notes or more.", "return len(notes) >= LIMIT"),
    ("Old notes are deleted.", "notes.pop(0)"),
)
LESSON_DEMO = Demo((_LESSON_ANSWER,), words=("notes.py",), files={"notes.py": _NOTES_TEXT})


def check(workshop: Workshop) -> None:
    """Check a file, the same file again, a changed file, and its old content elsewhere."""
    workshop.write("notes.py", _NOTES_TEXT)
    run = workshop.run(_LESSON_ANSWER, words=["notes.py"])
    expect(
        "dropped: Old notes are deleted." in run.output,
        f"'notes.pop(0)' is not in the file: 'dropped: Old notes …'. Printed: {quote(run.output)}.",
        "A statement counts only if its quote is in the file.",
        "text.find(quote) is -1 if it is not there.",
        'if text.find(statement["quote"]) < 0:\n    print(f"dropped: {statement[\'text\']}")',
    )
    expect(
        "notes.py:1: Three notes" in run.output and "notes.py:5: A full book" in run.output,
        f"Two statements should have the lines 1 and 5. Printed: {quote(run.output)}.",
        "Count the line breaks before the quote.",
        "The first line has the number 1.",
        'line = text.count("\\n", 0, start) + 1',
    )
    again = workshop.run(_LESSON_ANSWER, words=["notes.py"])
    expect(
        not again.requests and again.output == run.output,
        f"The second time no model should be asked, but it was, {len(again.requests)} times.",
        "Write the statements to statements.json, and look there first.",
        "The key is the hash of the content.",
        "key = hashlib.sha256(text.encode()).hexdigest()",
    )
    workshop.write("notes.py", f"# Notes\n{_NOTES_TEXT}")
    changed = workshop.run(_LESSON_ANSWER, words=["notes.py"])
    expect(
        len(changed.requests) == 1 and "notes.py:2: Three notes" in changed.output,
        f"The file has changed, so a model should be asked about it. Printed: {quote(changed.output)}.",
        "The name of the file says nothing about its content.",
        "The key is the hash of the content.",
        "if key not in known: …",
    )
    workshop.write("old.py", _NOTES_TEXT)
    back = workshop.run(_LESSON_ANSWER, words=["old.py"])
    expect(
        not back.requests and "old.py:1: Three notes" in back.output,
        "The first content is known, whatever its file is called, but a model was asked about it.",
        "Keep what was known about the earlier content.",
        "Add to the dictionary in statements.json instead of replacing it.",
        "known[key] = …; STORE.write_text(json.dumps(known))",
    )
