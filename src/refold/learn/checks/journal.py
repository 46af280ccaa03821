"""Checks lesson 8: the program writes each event to a journal before it continues."""

from refold.learn.model_server import Json, ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (call("write_file", path="notes.txt", content="milk\n"), ModelReply("I noted it.")),
    typed=("Note: milk", "y", "/undo"),
)


def check(workshop: Workshop) -> None:
    """Check the events of a turn, an undo and /new, and that they precede their effects."""
    workshop.write("notes.txt", "old")
    write = call("write_file", path="notes.txt", content="new")
    run = workshop.run(write, ModelReply("Noted."), typed=["Note it", "y", "/undo", "/new"])
    run.expect_no_errors()
    events = workshop.journal()
    _expect_kinds(events)
    expect(
        events[0].get("text") == "Note it",
        f"The event 'said' should have the text of the user: {quote(str(events[0]))}.",
        "An event has all that is needed to understand it later.",
        "record takes any fields: record(kind, **data).",
        'record("said", text=text)',
    )
    saved = next(event for event in events if event.get("kind") == "saved")
    expect(
        saved.get("content") == "old",
        f"The event 'saved' should have the old content: {quote(str(saved))}.",
        "With it, the file could be restored from the journal alone.",
        "Read the file before the tool writes it.",
        'record("saved", path=path, content=…)',
    )
    ended = next(event for event in events if event.get("kind") == "ended")
    expect(
        ended.get("call_id") and "notes.txt" in str(ended.get("result")),
        f"The event 'ended' should have the id and the result of the call: {quote(str(ended))}.",
        "A result without its call says nothing.",
        "The id is in call['id'].",
        'record("ended", call_id=call["id"], result=result)',
    )
    _check_order(workshop)


def _expect_kinds(events: list[Json]) -> None:
    """Check that the events are of the expected kinds, in this order."""
    kinds = [str(event.get("kind")) for event in events]
    wanted = [
        "said",
        "answered",
        "started",
        "saved",
        "ended",
        "answered",
        "undone",
        "cleared",
    ]
    missing = [kind for kind in wanted if kind not in kinds]
    expect(
        not missing,
        f"The journal has no event {', '.join(map(repr, missing))}. It has {kinds}.",
        "Each thing that happens is an event: look at the table in the text.",
        "Call record where it happens.",
        f'record("{missing[0] if missing else ""}", …)',
    )
    expect(
        kinds == wanted,
        f"The events should be {wanted}, but are {kinds}.",
        "The order of the events is the order in which things happened.",
        "'started' comes before the tool runs, 'saved' before the file is written.",
        'record("started", call_id=call["id"]) stands before `try`',
    )


def _check_order(workshop: Workshop) -> None:
    """Check that 'started' is in the journal when the tool runs."""
    bash_call = call("bash", command="cat journal.jsonl > copy.jsonl")
    workshop.run(bash_call, ModelReply("Done."), typed=["Look", "y"])
    copy = (workshop.read("copy.jsonl") or "").splitlines()
    expect(
        copy and '"started"' in copy[-1],
        "When a tool runs, the journal must already say that it was started.",
        "If the program dies while the tool runs, the journal must tell of it.",
        "Write 'started' first. The file must be closed or flushed: Python collects output.",
        "journal.flush() and os.fsync(journal.fileno()), then run the tool",
    )
