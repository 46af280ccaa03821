"""Applies a user's edit of an earlier message to the conversation. Pure.

A response is deleted together with the results of its calls, and a deleted message of the
user leaves a line that says so: that way the next request is valid for every provider. The
journal keeps the original; `conversation` applies the result.

An edit is an event, because a rewritten journal could not be resumed, replayed or verified, and a
rewind to before the message would lose all that came later. The deleted text stays on the disk
until the session is deleted.
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
    """Return the messages after `event`, or None if the message is not among them.

    `delivered` is the seq under which a message of the user entered the conversation, and
    `before` its text; 0 and "" for a response.
    """
    seq = delivered or event.message
    index = next((n for n, stored in enumerate(messages) if stored.seq == seq), None)
    if index is None:
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
    earlier, later = messages[:index], messages[index + 1 :]
    if parts:
        new = StoredMessage(seq, replace(message, parts=parts))
        return Log([*earlier, new, *later])
    if message.calls:  # the next message has their results, so it is deleted, too
        later = later[1:]
    return Log([*earlier, *later])


def _edit_user_message(
    message: Message, before: str, text: str | None
) -> tuple[Part, ...] | None:
    """Return the parts with the text `before` replaced, or None if no part is this text.
    Several messages may have been delivered as one.
    """
    texts = [part for part in message.parts if isinstance(part, Text)]
    old = next((part for part in texts if part.text == before), None)
    if old is None:
        return None
    if text is None and len(texts) == 1:  # the images of the message are dropped, too
        return (Text(DELETED_NOTE),)
    new = Text(DELETED_NOTE if text is None else text)
    return tuple(new if part is old else part for part in message.parts)


def _edit_response(message: Message, text: str | None) -> tuple[Part, ...]:
    """Return the parts of the response with the new text; () if `text` is None (deleted)."""
    if text is None:
        return ()
    if not message.calls:  # the thinking belongs to the old text, so it is dropped
        return (Text(text),)
    return tuple(_with_text(message, text))


def _with_text(message: Message, text: str) -> Iterator[Part]:
    """Yield the parts of a response with `text` in place of its own text, before its calls.

    The thinking stays, because providers require it if there are calls.
    """
    is_written = False
    for part in message.parts:
        if isinstance(part, Text | ToolCall | Image) and not is_written:
            is_written = True
            yield Text(text)
        if not isinstance(part, Text):
            yield part
