"""The messages of a talk after it was told shorter. Pure; part of the fold of `talk`.

Whatever stands after the first change is a new object: what has been encoded of the
talk is remembered by identity, and all from there on has to be sent anew.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from refold.journal.events.kinds import Compacted
from refold.values.growing import Log
from refold.values.messages import Message, Part, Spoken, Text, ToolResult


def compacted(messages: Log[Spoken], event: Compacted, seq: int) -> Log[Spoken]:
    """`messages` as the model is told them after `event`, which stands at `seq`."""
    lines = dict(event.pruned)
    if event.kind == "prune":
        return Log(list(_pruned(messages, lines)))
    # These results nobody has read yet: only their words are too long.
    told = tuple(Text(part) for part in (event.preserved, event.summary) if part.strip())
    at = _first(messages, event.first_kept)
    left = [Spoken(s.seq, _with(s.message, lines, pictures=True)) for s in messages[at:]]
    return Log([Spoken(seq, Message("user", told)), *left] if told else left)


def images_in(messages: Iterable[Spoken]) -> tuple[str, ...]:
    """The blobs of the pictures that the messages show, each once."""
    return tuple(dict.fromkeys(i.blob for s in messages for i in s.message.images))


def _first(messages: Log[Spoken], kept: int) -> int:
    found = (n for n, spoken in enumerate(messages) if spoken.seq == kept)
    return next(found, len(messages)) if kept else len(messages)


def _pruned(messages: Log[Spoken], lines: dict[str, str]) -> Iterator[Spoken]:
    same = True
    for spoken in messages:
        message = _with(spoken.message, lines)
        same = same and message is spoken.message
        yield spoken if same else Spoken(spoken.seq, message)


def _with(message: Message, lines: dict[str, str], *, pictures: bool = False) -> Message:
    hit = any(isinstance(p, ToolResult) and p.call_id in lines for p in message.parts)
    return (
        replace(message, parts=tuple(_told(p, lines, pictures) for p in message.parts))
        if hit
        else message
    )


def _told(part: Part, lines: dict[str, str], pictures: bool) -> Part:
    if isinstance(part, ToolResult) and part.call_id in lines:
        shown = part.images if pictures else ()
        return ToolResult(part.call_id, lines[part.call_id], part.failed, shown)
    return part
