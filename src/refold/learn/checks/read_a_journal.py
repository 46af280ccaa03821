"""Checks lesson 16: the program reads a journal of refold."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_LESSON_SESSION = (
    call("list_files"),
    call("write_file", path="notes.md", content="milk\n"),
    call("bash", command="rm -rf /"),
    ModelReply("Your notes are tidy."),
)
LESSON_DEMO = Demo((), words=("session.jsonl",), session=_LESSON_SESSION)


def check(workshop: Workshop) -> None:
    """Check the reported tools, refusals and tokens, and then a journal with a changed line."""
    workshop.make_session(*_LESSON_SESSION)
    run = workshop.run(words=["session.jsonl"])
    for tool in ("bash", "list_files", "write_file"):
        expect(
            f"{tool}: 1" in run.output,
            f"The model called {tool} once, so '{tool}: 1' should be printed: {quote(run.output)}.",
            "The calls are in the events ModelAnswered.",
            "data['message']['parts'] is a list; a call has the type 'call' and a name.",
            'calls.update(part["name"] for part in parts if part["type"] == "call")',
        )
    journal = workshop.read("session.jsonl") or ""
    refused = journal.count('"verdict":"deny"')
    expect(
        f"refused: {refused}" in run.output,
        f"'refused: {refused}' should be printed. Printed: {quote(run.output)}.",
        "Each call is judged once or more.",
        "Count the events Judged whose verdict is 'deny'.",
        'if event["kind"] == "Judged" and event["data"]["verdict"] == "deny":',
    )
    expect(
        "tokens: 48" in run.output,
        f"The model wrote 4 times 12 tokens: 'tokens: 48'. Printed: {quote(run.output)}.",
        "Add up the usage of all answers.",
        "usage['output'] is what the model wrote.",
        'tokens += event["data"]["usage"]["output"]',
    )
    expect(
        "changed" not in run.output,
        f"No line was changed, but your program says so: {quote(run.output)}.",
        "The hash is over the hash before and the rest of the line, as they are written.",
        "The rest begins at the quotation mark before seq, and ends with the brace.",
        "rest = line[line.index('\"seq\"') :]",
    )
    _check_changed_line(workshop, journal)


def _check_changed_line(workshop: Workshop, journal: str) -> None:
    """Change one line of the journal, and check that the program reports its number."""
    rows = journal.splitlines(keepends=True)
    number = next(n for n, row in enumerate(rows, 1) if "milk" in row)
    rows[number - 1] = rows[number - 1].replace("milk", "beer")
    workshop.write("changed.jsonl", "".join(rows))
    run = workshop.run(words=["changed.jsonl"])
    expect(
        f"line {number} was changed" in run.output,
        f"Line {number} was changed, and 'line {number} was changed' should be printed. "
        f"Printed: {quote(run.output)}.",
        "Compare the hash that you compute with the one in the line.",
        "The first line follows sixteen zeros.",
        'if chain != event["h"]:',
    )
