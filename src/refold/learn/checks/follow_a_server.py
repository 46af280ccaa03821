"""Checks lesson 23: a client reconnects to a server after the connection was lost."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

_LESSON_REPLIES = (call("list_files"), ModelReply("There are no files here, only you."))
LESSON_DEMO = Demo(_LESSON_REPLIES, words=("Which", "files", "are", "here?"))


def check(workshop: Workshop) -> None:
    """Check the received documents, their order, and how often the client sent its message."""
    run = workshop.run(*_LESSON_REPLIES, words=["Which", "files?"])
    rows = [row.split() for row in run.output.splitlines() if len(row.split()) == 2]
    kinds = [kind for _, kind in rows]
    ids = [id_ for id_, _ in rows if id_ != "-"]
    twice = sorted({id_ for id_ in ids if ids.count(id_) > 1})
    expect(
        not twice,
        f"These documents came twice: {quote(', '.join(twice))}.",
        "The address says where you stand.",
        "?after= and the id of the last document that has one.",
        'f"{address}?after={last_id}"',
    )
    expect(
        "result" in kinds,
        f"The last document should be 'result'. Printed: {quote(run.output)}.",
        "After three documents the connection breaks. Connect again.",
        "A loop around read_documents ends when a document of the type 'result' has come.",
        "for _ in range(MAX_CONNECTIONS):\n    for document in read_documents(…):\n        …",
    )
    messages = [event for event in workshop.session_events() if event["kind"] == "Said"]
    expect(
        len(messages) == 1,
        f"The message was sent {len(messages)} times: once is enough.",
        "The order belongs to the first connection only.",
        "read_documents sends nothing if its order is empty.",
        'order = ""  # after the first connection',
    )
    expect(
        "tool_call" in kinds
        and "tool_result" in kinds
        and kinds.index("tool_call") < kinds.index("tool_result"),
        f"A call and its result are missing among the documents. Printed: {quote(run.output)}.",
        "A document with an id is printed, whatever its type.",
        "Each connection gets three documents; some of them have no id.",
        'if "id" in document:\n    last_id = document["id"]\n    print(last_id, document["type"])',
    )
