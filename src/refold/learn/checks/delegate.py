"""Checks lesson 12: the program gives a task to a second agent, and gets only its answer."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("delegate", task="Read a.txt and b.txt and say which is longer."),
        call("read_file", path="a.txt"),
        call("read_file", path="b.txt"),
        ModelReply("b.txt is longer: 3 lines against 1."),
        ModelReply("b.txt is the longer one."),
    ),
    typed=("Which of a.txt and b.txt is longer?",),
    files={"a.txt": "one\n", "b.txt": "one\ntwo\nthree\n"},
)


def check(workshop: Workshop) -> None:
    """Check a subagent's task, context, journal, tools and limit, and that undo includes it."""
    workshop.write("a.txt", "SECRET OF A")
    task = call("delegate", task="Read a.txt")
    typed = ["Have a.txt read"]
    run = workshop.run(
        task,
        call("read_file", path="a.txt"),
        ModelReply("It has one line."),
        ModelReply("One line."),
        typed=typed,
    )
    run.expect_no_errors()
    result = run.messages(1)[-1]
    expect(
        result.get("role") != "tool",
        "No subagent asked the model. The result of `delegate` was "
        f"{quote(str(result.get('content')))}.",
        "Does `delegate` wait for a permission? Does run_tool know it?",
        "The subagent asks for what it does, so `delegate` belongs to HARMLESS_TOOLS.",
        'HARMLESS_TOOLS = {"read_file", "list_files", "delegate"}',
    )
    expect(
        len(run.requests) == 4,
        f"Two agents should have asked the model 4 times, not {len(run.requests)} times.",
        "A subagent is a turn of its own, with a journal of its own.",
        "delegate makes a Journal, records the task as 'said', and runs run_turn.",
        'subagent.record("said", text=task)\nrun_turn(subagent)',
    )
    expect(
        "Have a.txt read" not in str(run.messages(1))
        and "Read a.txt" in str(run.messages(1)),
        f"The subagent should get its task and nothing else: {quote(str(run.messages(1)))}.",
        "It must not inherit the conversation.",
        "Its journal is a new file.",
        'Journal(Path(f"journal-{number}.jsonl"), parent=journal)',
    )
    last = str(run.messages(3))
    expect(
        "It has one line." in last and "SECRET OF A" not in last,
        f"The result of `delegate` should be the last text of the subagent: {quote(last)}.",
        "What the subagent read stays with the subagent. That is its purpose.",
        "The last message of its conversation is its answer.",
        'conversation(subagent.events)[-1]["content"]',
    )
    tools = str(run.requests[1].get("tools"))
    expect(
        "read_file" in tools and "delegate" not in tools,
        "A subagent should have the tools, but not `delegate`.",
        "Subagents of subagents of subagents: who pays for that?",
        "A journal with a parent is that of a subagent.",
        "schemas = TOOL_SCHEMAS if journal.parent else [*TOOL_SCHEMAS, DELEGATE_SCHEMA]",
    )
    _check_limit(workshop)
    _check_undo(workshop)


def _check_limit(workshop: Workshop) -> None:
    """Check that a subagent stops after five steps, and what its result says then."""
    workshop.write("journal.jsonl", "")
    looks = [call("list_files")] * 5
    run = workshop.run(
        call("delegate", task="Look"), *looks, ModelReply("It failed."), typed=["Go"]
    )
    expect(
        len(run.requests) == 7,
        f"A subagent should be stopped after 5 steps. There were {len(run.requests)} requests, not 7.",
        "The limit of a subagent is smaller than that of its parent.",
        "run_turn can look at journal.parent.",
        "max_steps = MAX_SUBAGENT_STEPS if journal.parent else MAX_STEPS",
    )
    result = str(run.messages(-1)[-1].get("content"))
    expect(
        "without an answer" in result,
        f"Then its result should say 'It ended without an answer.', but was {quote(result)}.",
        "A subagent that was stopped has no last text.",
        "Its last message is a result of a tool, not an answer.",
        'return last["content"] if last["role"] == "assistant" else "It ended without an answer."',
    )


def _check_undo(workshop: Workshop) -> None:
    """Check that /undo restores a file that the subagent wrote."""
    workshop.write("journal.jsonl", "")
    write = call("write_file", path="b.txt", content="written")
    replies = (
        call("delegate", task="Write b.txt"),
        write,
        ModelReply("Written."),
        ModelReply("Done."),
    )
    workshop.run(*replies, typed=["Go", "a", "/undo"])
    expect(
        workshop.read("b.txt") is None,
        "/undo should also restore the files that the subagent wrote.",
        "The user undoes a turn, with the work of all agents in it.",
        "undo looks at the journal of the parent. Where does the subagent record 'saved'?",
        'save_old_content(journal.parent or journal, arguments["path"])',
    )
