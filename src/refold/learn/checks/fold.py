"""Checks lesson 9: the program computes its whole state from its journal."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, printed_number, quote

LESSON_DEMO = Demo(
    (
        call("write_file", path="notes.txt", content="milk\n"),
        ModelReply("I noted it."),
        ModelReply("Milk, as before."),
    ),
    typed=("Note: milk", "y", "What did I want?", "/cost", "/undo"),
)


def check(workshop: Workshop) -> None:
    """Check a conversation with calls, one after /new, two undone turns, and the token count."""
    write = call("write_file", path="notes.txt", content="new")
    workshop.write("notes.txt", "old")
    run = workshop.run(
        write,
        ModelReply("Noted."),
        ModelReply("Milk."),
        typed=["Note it", "y", "What was it?"],
    )
    run.expect_no_errors()
    kinds = [str(event.get("kind")) for event in workshop.journal()]
    wanted_kinds = ["said", "answered", "started", "saved", "ended"]
    missing = [kind for kind in wanted_kinds if kind not in kinds]
    expect(
        not missing,
        f"The journal has no event {', '.join(map(repr, missing))}. It has {kinds}.",
        "Only the lists beside the journal go away. All events of step 8 stay.",
        "Each function that recorded an event gets the journal, and calls journal.record.",
        f'journal.record("{missing[0] if missing else ""}", …)',
    )
    roles = [str(message.get("role")) for message in run.messages(-1)]
    wanted_roles = ["system", "user", "assistant", "tool", "assistant", "user"]
    expect(
        len(roles) > 1,
        "The file has all events, but the model got only the system prompt.",
        "conversation(events) gets the events that the journal has in memory.",
        "Journal.record writes an event to the file and appends it to self.events.",
        "self.events.append(event)",
    )
    expect(
        roles == wanted_roles,
        f"The last request should have the roles {wanted_roles}, but has {roles}.",
        "conversation(events) makes a message of each 'said', 'answered' and 'ended'.",
        "The others, 'started' and 'saved', are not for the model.",
        'case "said":\n    messages.append({"role": "user", "content": event["text"]})',
    )
    expect(
        kinds[: len(wanted_kinds)] == wanted_kinds,
        f"The events are in another order than in step 8: {kinds}.",
        "The order of the events is the order in which things happened.",
        "'started' comes before the tool runs, 'saved' before the file is written.",
        'journal.record("started", call_id=call["id"]) stands before `try`',
    )
    run = workshop.run(
        ModelReply("Hello."), ModelReply("Who?"), typed=["I am Ada", "/new", "Who am I?"]
    )
    expect(
        "Ada" not in str(run.messages(-1)),
        "After /new the model still got the old conversation.",
        "/new records an event. What does the fold do with it?",
        "At 'cleared' only the system prompt stays.",
        'case "cleared":\n    del messages[1:]',
    )
    _check_undo(workshop)
    run = workshop.run(
        ModelReply("One."), ModelReply("Two."), typed=["First", "Second", "/cost"]
    )
    usages = [
        e["usage"]
        for e in workshop.journal()[-4:]
        if e.get("kind") == "answered" and "usage" in e
    ]
    expect(
        len(usages) == 2,
        "The events 'answered' have no field 'usage'.",
        "The last chunk of a stream with choices has the field 'usage'.",
        "call_model returns two values, and record gets both.",
        'journal.record("answered", message=message, usage=usage)',
    )
    cost = sum(usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages)
    expect(
        printed_number(run.output, cost),
        f"/cost should print {cost}, the tokens of this run. Printed: {quote(run.output)}.",
        "/cost is one more fold over the same events.",
        "Add the tokens of the requests and of the answers of all events 'answered'.",
        'usage["prompt_tokens"] + usage["completion_tokens"]',
    )


def _check_undo(workshop: Workshop) -> None:
    """Check one /undo, and then three of them, after two turns that changed a file."""
    workshop.write("notes.txt", "old")
    one, two = (call("write_file", path="notes.txt", content=text) for text in ("1", "2"))
    replies = one, ModelReply("."), two, ModelReply("."), ModelReply("!")
    typed = ["One", "a", "Two", "Just talk", "/undo"]
    run = workshop.run(*replies, typed=typed)
    expect(
        run.output.rpartition("!")[2].strip("> \n"),
        "/undo printed nothing.",
        "Is undo(journal) written, and does main call it?",
        "It restores the last dictionary of undoable_turns(journal.events), and prints its files.",
        "turns = undoable_turns(journal.events)\nfor path, content in turns[-1].items():\n    …",
    )
    expect(
        workshop.read("notes.txt") == "1",
        f"After one /undo notes.txt should be '1', but is {workshop.read('notes.txt')!r}.",
        "undoable_turns(events) begins a new turn at each 'said'.",
        "Turns that saved no file do not count.",
        "return [files for files in turns if files]",
    )
    workshop.write("notes.txt", "old")
    workshop.run(*replies, typed=[*typed, "/undo", "/undo"])
    expect(
        workshop.read("notes.txt") == "old",
        f"After two /undo notes.txt should be 'old', but is {workshop.read('notes.txt')!r}.",
        "A turn that was undone is not undone again: the next /undo takes the one before.",
        "/undo records 'undone', and the fold drops the last turn with files there.",
        'case "undone":\n    turns = [files for files in turns if files][:-1]',
    )
