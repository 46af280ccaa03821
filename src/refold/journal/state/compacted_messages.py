"""Applies a compaction to the messages of a conversation. Pure.

A compaction shortens old results to one line each (it prunes them), or replaces old messages by
a summary. `engine.prune` and `engine.summarize` decide what is pruned and what the summary says.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from refold.journal.events.kinds import Compacted
from refold.values.growing import Log
from refold.values.messages import Message, Part, StoredMessage, Text, ToolResult


def compact_messages(
    messages: Log[StoredMessage], event: Compacted, seq: int
) -> Log[StoredMessage]:
    """Return the messages after the compaction `event`, which has the number `seq`.

    With the kind "prune", only results are pruned. With any other kind, a summary replaces all
    messages before `event.first_kept`, and results in the other messages are pruned.
    """
    lines = dict(event.pruned)
    if event.kind == "prune":
        return Log(list(_prune(messages, lines)))
    texts = tuple(Text(part) for part in (event.preserved, event.summary) if part.strip())
    summary = [StoredMessage(seq, Message("user", texts))] if texts else []
    start = _index_of(messages, event.first_kept)
    # The model has not read the results in these messages yet, so their images stay.
    kept = [
        StoredMessage(s.seq, _prune_message(s.message, lines, keep_images=True))
        for s in messages[start:]
    ]
    return Log([*summary, *kept])


def _index_of(messages: Log[StoredMessage], first_kept: int) -> int:
    """Return the index of the message `first_kept`; the number of messages if no message stays."""
    if not first_kept:
        return len(messages)
    indexes = (n for n, stored in enumerate(messages) if stored.seq == first_kept)
    return next(indexes, len(messages))


def _prune(messages: Log[StoredMessage], lines: dict[str, str]) -> Iterator[StoredMessage]:
    """Yield the messages with pruned results: the same objects up to the first change."""
    is_unchanged = True
    for stored in messages:
        message = _prune_message(stored.message, lines)
        is_unchanged = is_unchanged and message is stored.message
        yield stored if is_unchanged else StoredMessage(stored.seq, message)


def _prune_message(
    message: Message, lines: dict[str, str], *, keep_images: bool = False
) -> Message:
    """Return the message with the lines in place of its results.

    Return the same message if no line is for one of its results. `keep_images`: the images of
    the results stay.
    """
    if not any(isinstance(p, ToolResult) and p.call_id in lines for p in message.parts):
        return message
    parts = tuple(_prune_part(part, lines, keep_images) for part in message.parts)
    return replace(message, parts=parts)


def _prune_part(part: Part, lines: dict[str, str], keep_images: bool) -> Part:
    """Return the part. A result whose call is in `lines` is replaced by its line.

    If `keep_images`, the images of the result stay.
    """
    if not isinstance(part, ToolResult) or part.call_id not in lines:
        return part
    kept_images = part.images if keep_images else ()
    return ToolResult(part.call_id, lines[part.call_id], part.failed, kept_images)
