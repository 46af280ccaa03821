"""Applies a user's edit of an earlier message to the conversation. Pure.

A response is deleted together with the results of its calls, and a deleted message of the
user leaves a line that says so: that way the next request is valid for every provider. The
journal keeps the original; `conversation` applies the result.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from refold.journal.events.kinds import MessageEdited
from refold.values.growing import Log
from refold.values.messages import Image, Message, Part, StoredMessage, Text, ToolCall

DELETED_NOTE = "<reminder>The user deleted this message.</reminder>"


def edit_messages(
    messages: Log[StoredMessage], event: MessageEdited, delivered: int, before: str
) -> Log[StoredMessage] | None:
    """The messages after `event`, or None if the message is not among them.

    `delivered` is the seq under which a message of the user entered the conversation, and
    `before` its text; 0 and "" for a response.
    """
    wanted = delivered or event.message
    index = next((n for n, spoken in enumerate(messages) if spoken.seq == wanted), -1)
    if index < 0:
        return None
    message = messages[index].message
    if delivered:
        parts = _edit_user_message(message, before, event.text)
    elif message.role == "assistant":
        parts = _edit_response(message, event.text)
    else:
        return None
    if parts is None:
        return None
    results = 1 if not parts and message.calls else 0
    new = (
        [StoredMessage(messages[index].seq, replace(message, parts=parts))] if parts else []
    )
    return Log([*messages[:index], *new, *messages[index + 1 + results :]])


def _edit_user_message(
    message: Message, before: str, text: str | None
) -> tuple[Part, ...] | None:
    """The parts with `before` replaced. Several messages may have been delivered as one."""
    texts = [part for part in message.parts if isinstance(part, Text)]
    old = next((part for part in texts if part.text == before), None)
    if old is None:
        return None
    if text is None and len(texts) == 1:  # also drops its images
        return (Text(DELETED_NOTE),)
    new = Text(DELETED_NOTE if text is None else text)
    return tuple(new if part is old else part for part in message.parts)


def _edit_response(message: Message, text: str | None) -> tuple[Part, ...]:
    if text is None:
        return ()
    if not message.calls:  # drop the thinking, which belongs to the old text
        return (Text(text),)
    return tuple(_with_text(message, text))


def _with_text(message: Message, text: str) -> Iterator[Part]:
    """The parts with `text` before the calls. Providers require that thinking is kept."""
    written = False
    for part in message.parts:
        if isinstance(part, Text | ToolCall | Image) and not written:
            written = True
            yield Text(text)
        if not isinstance(part, Text):
            yield part
