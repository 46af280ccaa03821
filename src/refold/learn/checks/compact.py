"""Checks lesson 11: the program summarizes a conversation that has become too long."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import (
    Demo,
    ProgramRun,
    Workshop,
    call,
    expect,
    printed_number,
    quote,
)

_SUMMARY_TEXT = "The user keeps bees and wants a hive."
_LONG_TEXT = "Bees like flowers. " * 300
LESSON_DEMO = Demo(
    (
        ModelReply(_LONG_TEXT),
        ModelReply(_SUMMARY_TEXT),
        ModelReply("You keep bees, so you need a hive."),
    ),
    typed=("Tell me all about bees", "What do I need?"),
)


def check(workshop: Workshop) -> None:
    """Check summaries between and within turns, their use after a restart, and their cost."""
    typed = ["I keep bees", "What do I need?"]
    run = workshop.run(
        ModelReply(_LONG_TEXT),
        ModelReply(_SUMMARY_TEXT),
        ModelReply("A hive."),
        typed=typed,
    )
    expect(
        len(run.requests) == 3,
        f"The conversation was too long: one more request should ask for a summary. There were"
        f" {len(run.requests)} requests, not 3.",
        "Before each call of the model, run_turn looks at how long the conversation is.",
        "If len(json.dumps(messages)) is too large, it calls compact, which asks for the summary.",
        "if len(json.dumps(messages)) > MAX_CONVERSATION_CHARS:\n    compact(journal)\n"
        "and in compact:\nmessage, usage = call_model([*conversation(journal.events), request], [])",
    )
    expect(
        not run.requests[1].get("tools"),
        "The request for the summary offers tools.",
        "A model that has tools may call one instead of writing a summary.",
        "Give call_model a second parameter: the schemas of the tools.",
        "call_model([*conversation(journal.events), request], [])",
    )
    _expect_summary(run)
    text = str(run.messages(2))
    expect(
        "What do I need?" in text,
        "The message that the user has just sent is not in the request after the summary.",
        "A summary may leave out what the user wants now.",
        "Keep the last message of the user as it is, beside the summary.",
        "text = f\"Our work so far: {event['summary']}\\n\\nMy last message was: {last_text}\"",
    )
    expect(
        any(_LONG_TEXT[:500] in str(event) for event in workshop.journal()),
        "The long answer is gone from the journal.",
        "A summary changes what the model gets, not what happened.",
        "Record the summary as an event. The old events stay.",
        'journal.record("compacted", summary=message["content"], usage=usage)',
    )
    again = workshop.run(ModelReply("Welcome back."), typed=["Hello again"])
    expect(
        _SUMMARY_TEXT in str(again.messages(0)) and len(again.requests) == 1,
        "After a new start the summary is not used.",
        "conversation(events) must do the same with the same events.",
        "The fold handles the event 'compacted', wherever it comes from.",
        'case "compacted": … messages[1:] = [{"role": "user", "content": text}]',
    )
    _check_calls_in_the_middle(workshop)
    _check_cost(workshop)


def _expect_summary(run: ProgramRun) -> None:
    """Check that the third request has the summary instead of the long text."""
    text = str(run.messages(2))
    expect(
        _SUMMARY_TEXT in text and _LONG_TEXT[:500] not in text,
        f"After the summary the model should get it in place of the rest. It got {quote(text)}.",
        "The event 'compacted' replaces all messages before it, except for the system prompt.",
        "messages[1:] = […] replaces them.",
        'messages[1:] = [{"role": "user", "content": text}]',
    )


def _check_calls_in_the_middle(workshop: Workshop) -> None:
    """Check two summaries in the middle of a turn: the second one must replace the first."""
    workshop.write("journal.jsonl", "")
    workshop.write("long.txt", _LONG_TEXT)
    read = call("read_file", path="long.txt")
    run = workshop.run(
        read, ModelReply("It is about bees."), read, ModelReply("It was read twice."), ModelReply("Bees."),
        typed=["Read long.txt"],
    )  # fmt: skip
    roles = [str(message.get("role")) for message in run.messages(-1)]
    expect(
        set(roles[1:]) == {"user"} and "Read long.txt" in str(run.messages(-1)),
        "A long result should be summarized in the middle of a turn, too. After that the model "
        f"should get only 'system' and 'user' messages. It got {roles}.",
        "The conversation grows by results, not only by what people say.",
        "Look at the length before each call of the model, inside of the loop.",
        "the `if` stands in run_turn, before call_model",
    )
    expect(
        "It is about bees." not in str(run.messages(-1)),
        "After the second summary of a turn, the first one is still in the request.",
        "After a summary, the last message of the role 'user' is not the user's.",
        "Let the fold keep the text of the last event 'said'.",
        'case "said": last_text = event["text"] …',
    )


def _check_cost(workshop: Workshop) -> None:
    """Check that /cost includes the tokens of the summary."""
    workshop.write("journal.jsonl", "")
    run = workshop.run(
        ModelReply(_LONG_TEXT), ModelReply(_SUMMARY_TEXT), ModelReply("A hive."),
        typed=["I keep bees", "What do I need?", "/cost"],
    )  # fmt: skip
    cost = sum(usage["prompt_tokens"] + usage["completion_tokens"] for usage in run.usages)
    expect(
        printed_number(run.output, cost),
        f"The three answers cost {cost} tokens, with the summary: /cost should print that. "
        f"Printed: {quote(run.output.rpartition('A hive.')[2])}.",
        "The event 'compacted' has a field usage, like 'answered'.",
        "The fold of /cost adds it up as well.",
        'usages = [event["usage"] for event in events if "usage" in event]',
    )
