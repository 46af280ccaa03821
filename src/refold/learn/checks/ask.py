"""Checks lesson 6: the program asks the user before a tool changes something."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, ProgramRun, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("bash", command="echo hello > greeting.txt"),
        ModelReply("greeting.txt says hello."),
        call("bash", command="rm greeting.txt"),
        ModelReply("You did not want that, so I left it there."),
    ),
    typed=("Write a greeting", "y", "Delete it", "n"),
)


def check(workshop: Workshop) -> None:
    """Check a refusal, an approval once and for all calls, harmless tools, and end of input."""
    make = call("bash", command="echo made > made.txt")
    run = workshop.run(make, ModelReply("I did not."), typed=["Make it", "n"])
    expect(
        workshop.read("made.txt") is None,
        "The user answered 'n', but the command ran.",
        "Ask before you run a tool.",
        "run_tool returns before it does anything if the call is not allowed.",
        'if not is_allowed(call):\n    return "The user refused this call."',
    )
    expect(
        "refused" in _last_result(run).lower(),
        f"The model should read that the user refused. It read {quote(_last_result(run))}.",
        "A call always gets a result, else the next request is invalid.",
        "Return a sentence in place of the result.",
        'return "The user refused this call."',
    )
    run = workshop.run(make, ModelReply("Made."), typed=["Make it", "y"])
    run.expect_no_errors()
    expect(
        (workshop.read("made.txt") or "").strip() == "made",
        "The user answered 'y', but the command did not run.",
        "input() returns what was typed.",
        "is_allowed returns True or False, and run_tool runs the tool if it is True.",
        'return answer in ("y", "a")  # at the end of is_allowed',
    )
    expect(
        "exit code 0" in _last_result(run).lower(),
        f"The result of a command should name its exit code, but was {quote(_last_result(run))}.",
        "A command that prints nothing has still worked or failed.",
        "subprocess.run returns an object with `returncode`.",
        'return f"{done.stdout}{done.stderr}(exit code {done.returncode})"',
    )
    workshop.write("notes.txt", "ready")
    run = workshop.run(
        call("read_file", path="notes.txt"), ModelReply("Read."), typed=["Read"]
    )
    expect(
        "ready" in _last_result(run),
        "Reading a file should not need a permission.",
        "Questions about harmless things teach people to say yes without reading.",
        "List the tools that cannot do harm.",
        'HARMLESS_TOOLS = {"read_file", "list_files"}',
    )
    _check_always(workshop)
    run = workshop.run(make, ModelReply("I did not."), typed=["Make it"])
    expect(
        "refused" in _last_result(run).lower(),
        "The input ended at the question. That is not a permission.",
        "input() raises EOFError at the end of the input.",
        "Whatever is not a clear yes is a no.",
        'except EOFError:\n    answer = "n"',
    )


def _check_always(workshop: Workshop) -> None:
    """Check that "a" allows one tool for good, and no other."""
    first, second = (
        call("bash", command="echo 1 > 1.txt"),
        call("bash", command="echo 2 > 2.txt"),
    )
    write = call("write_file", path="3.txt", content="3")
    run = workshop.run(first, second, write, ModelReply("Done."), typed=["Go", "a", "n"])
    expect(
        workshop.read("1.txt") is not None and workshop.read("2.txt") is not None,
        "After 'a' the second command should run without a question.",
        "Remember the tools that were allowed for good.",
        "A set of names, in a variable of the module.",
        'if answer == "a":\n    always_allowed.add(name)',
    )
    expect(
        workshop.read("3.txt") is None and "refused" in _last_result(run).lower(),
        "bash was always allowed, but write_file was not: it must ask.",
        "What was allowed is one tool, not all of them.",
        "Add the name of the tool to the set, and look for the name of the next one in it.",
        "name in always_allowed",
    )


def _last_result(run: ProgramRun) -> str:
    """Return the result of the last call in the last request; "" if there is no call."""
    results = [m for m in run.messages(-1) if m.get("role") == "tool"]
    return str(results[-1].get("content")) if results else ""
