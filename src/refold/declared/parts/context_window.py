"""The context modes `sliding` and `summarize`, which differ in `note`."""

from refold.declared.parts.newest_request import newest_request, trim_to_fit
from refold.declared.parts.note_count import note
from refold.declared.parts.program_messages import Message
from refold.declared.parts.settings import MAX_MESSAGES


def in_context(messages: list[Message]) -> list[Message]:
    """What is sent: the newest request and the last messages, and a note for the others."""
    first, after = newest_request(messages)
    start = max(len(messages) - MAX_MESSAGES, 0)
    while start > 0 and messages[start].role == "tool":
        start -= 1  # a result needs its call
    kept: list[Message] = []
    left_out: list[Message] = []
    for place, message in enumerate(messages):
        if place < start and not first <= place < after:
            left_out.append(message)
            continue
        if left_out:
            kept.append(Message("note", note(left_out)))
            left_out = []
        kept.append(message)
    return trim_to_fit(kept)
