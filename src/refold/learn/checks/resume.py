"""Checks lesson 10: after the program was killed at any moment, it resumes its work."""

from pathlib import Path

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (ModelReply("I noted that your name is Ada."), ModelReply("Ada.")),
    typed=("My name is Ada.", "(Ctrl+D, then run it again)", "What is my name?"),
)


def check(workshop: Workshop) -> None:
    """Check a restart, an incomplete line, and a kill before a tool starts or while it runs."""
    workshop.run(ModelReply("Hello, Ada!"), typed=["My name is Ada."])
    run = workshop.run(ModelReply("Ada."), typed=["What is my name?"])
    expect(
        run.requests and "My name is Ada." in str(run.messages(-1)),
        "After a new start the conversation was forgotten.",
        "The journal has it all. Who reads it?",
        "Journal.__init__ reads the file, if there is one.",
        "self.events = load_events(path)",
    )
    expect(
        len(run.requests) == 1,
        f"A turn that was over was continued: {len(run.requests)} requests instead of one.",
        "The start runs run_turn. When is there nothing to do?",
        "An answer without calls ended the turn: the last message is the assistant's.",
        'if messages[-1]["role"] in ("system", "assistant"):\n    return',
    )
    _check_torn_line(workshop)
    _check_kill_during_call(workshop)
    _check_kill_before_call(workshop)


def _check_torn_line(workshop: Workshop) -> None:
    """Check that an incomplete last line of the journal is ignored."""
    workshop.write(
        "journal.jsonl", (workshop.read("journal.jsonl") or "") + '{"kind": "sai'
    )
    run = workshop.run(ModelReply("Still Ada."), typed=["And now?"])
    expect(
        "Ada" in str(run.messages(-1))
        and "sai" not in [e["kind"] for e in workshop.journal()],
        "A journal whose last line is torn should be read up to that line.",
        "A program can die in the middle of a line.",
        "Only a line with a line break at its end is complete. Cut the rest off.",
        'whole_lines = data[: data.rfind(b"\\n") + 1]\nos.truncate(path, len(whole_lines))',
    )


def _check_kill_during_call(workshop: Workshop) -> None:
    """Kill the program during a call. Check that the call is not repeated at the next start."""
    workshop.write("journal.jsonl", "")
    slow = call("bash", command="echo run >> runs.txt; sleep 3")
    was_running = workshop.kill_when(_has_begun, slow, typed=["Do it", "y"])
    expect(
        was_running,
        "The user allowed a command, but it did not run.",
        "A call that was not started before is run now.",
        "run_calls goes through the pairs of pending_calls: the call, and whether it was started.",
        "else:\n    result = run_tool(journal, call)",
    )
    run = workshop.run(ModelReply("I look first."), typed=["y"])
    expect(
        run.requests,
        "The program was killed while a tool ran. After the next start the model was not asked.",
        "A turn is not over while a call has no result.",
        "At the start, run the turn on before you read input.",
        "journal = Journal(…)\nrun_turn(journal)",
    )
    expect(
        (workshop.read("runs.txt") or "").count("run") == 1,
        "The program was killed while a command ran, and ran it again at the next start.",
        "How far the command came is unknown. Twice can be worse than not at all.",
        "'started' without 'ended' means: it may have run.",
        'if was_started:\n    result = "Unknown: it was interrupted. …"',
    )
    result = str(run.messages(0)[-1].get("content"))
    expect(
        "unknown" in result.lower(),
        f"The model should read that the result is unknown. It read {quote(result)}.",
        "The model can look at what happened, if it knows that it must.",
        "Record 'ended' with a sentence as the result.",
        'result = "Unknown: it was interrupted. Look at what it did."',
    )


def _has_begun(directory: Path) -> bool:
    """Return whether the command has written its line, a moment after creating its file."""
    runs = directory / "runs.txt"
    return runs.exists() and "run" in runs.read_text()


def _check_kill_before_call(workshop: Workshop) -> None:
    """Kill the program before a call. Check that the call is run at the next start."""
    workshop.write("journal.jsonl", "")
    make = call("bash", command="echo made > made.txt")
    workshop.kill_when(_was_answered, make, typed=["Make it"])
    run = workshop.run(ModelReply("Made."), typed=["y"])
    expect(
        (workshop.read("made.txt") or "").strip() == "made",
        "The program was killed before a call was started: it should ask, and run it now.",
        "Without 'started' it is certain that nothing happened.",
        "pending_calls gives each call that has no result, and whether it was started.",
        "result = run_tool(journal, call)",
    )
    expect(
        len(run.requests) == 1,
        f"The model had answered, and was asked {len(run.requests)} times for the same step.",
        "The answer is in the journal. It was paid for.",
        "Run the calls of the last answer before you call the model.",
        "run_calls(journal) stands before the loop",
    )


def _was_answered(directory: Path) -> bool:
    """Return whether the journal in this directory has an answer of the model."""
    lines = (directory / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return any('"answered"' in line for line in lines)
