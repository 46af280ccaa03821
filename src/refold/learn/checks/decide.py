"""Checks lesson 20: a policy decides the next action, tried on a session that has ended."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_LESSON_SESSION = (
    call("list_files"),
    call("write_file", path="notes.md", content="milk\n"),
    call("read_file", path="notes.md"),
    ModelReply("Your notes are tidy."),
)
LESSON_DEMO = Demo((), words=("session.jsonl",), session=_LESSON_SESSION)


def check(workshop: Workshop) -> None:
    """Check the policy's next action after each of three answers, and after their calls."""
    workshop.make_session(*_LESSON_SESSION)
    run = workshop.run(words=["session.jsonl"])
    answers = _rows(run.output, "ModelAnswered")
    results = _rows(run.output, "Ended")
    expect(
        len(answers) == 4 and len(results) == 3,
        f"Each event should have a line with what comes next. Printed: {quote(run.output)}.",
        "The loop at the end of the program stays as it is.",
        "It prints the kind of each event, such as ModelAnswered.",
        'print(f"{entry.seq} {type(entry.event).__name__}: {action}")',
    )
    expect(
        "AskModel(notes=()" in results[0],
        f"After one answer nothing changes, but the next action is {quote(results[0])}.",
        "view.turn.steps is 1 there.",
        "A policy that has nothing to add returns None.",
        "if view.turn.steps == 2: …",
    )
    expect(
        "One more answer." in results[1],
        f"After two answers the model should get the note. What comes next is {quote(results[1])}.",
        "A Note is added to the next request.",
        "The policy finish_soon must be in POLICIES.",
        'if view.turn.steps == 2:\n    return Note("One more answer.")',
    )
    expect(
        "EndTurn(outcome='step_limit'" in results[2],
        f"After three answers the turn should end. What comes next is {quote(results[2])}.",
        "EndTurn has an outcome and a reason.",
        "Import it from refold.engine.decide.",
        'return EndTurn("step_limit", "three answers are enough")',
    )
    expect(
        "RunCalls" in answers[2] and "converse" in answers[2],
        f"The third answer has a call, which runs before the end: {quote(answers[2])}.",
        "The rank of the actions decides, so that each call has a result.",
        "converse proposes to run the calls: is it still in POLICIES?",
        "POLICIES = [converse, finish_soon]",
    )
    expect(
        "finish_soon" in results[2],
        f"The policy should be called finish_soon, as the journal names it: {quote(results[2])}.",
        "The name of a policy is that of its function.",
        "A function that def makes has a name.",
        "def finish_soon(view):",
    )


def _rows(output: str, kind: str) -> list[str]:
    return [row for row in output.splitlines() if f" {kind}: " in row]
