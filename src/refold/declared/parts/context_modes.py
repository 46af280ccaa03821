"""Which messages the model is sent: the context modes.

`in_context` is the mode `continue`, `in_context_fresh` the mode `fresh`. The modes `sliding`
and `summarize` are `in_context_window`, with `note` or `note_digest`.
"""

import json

from refold.declared.parts.messages import Call, Message
from refold.declared.parts.settings import MAX_CONTEXT_TOKENS, MAX_MESSAGES


def speaker(message: Message) -> str:
    """Who has written a message."""
    return message.role


def message_text(message: Message) -> str:
    """All that a message says, as text."""
    calls = [f"[calls {call.name} with {compact(call)}]" for call in message.calls]
    results = [
        f"[the {'call failed' if result.failed else 'result'}]\n{result.text}"
        for result in message.results
    ]
    return "\n\n".join(filter(None, [message.text, *calls, *results]))


def compact(call: Call) -> str:
    """The arguments of a call as JSON in one line."""
    return json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))


def newest_request(messages: list[Message]) -> tuple[int, int]:
    """Where the newest message of the user begins and ends; it can be several."""
    after = len(messages)
    while after > 0 and messages[after - 1].role != "user":
        after -= 1
    first = after
    while first > 0 and messages[first - 1].role == "user":
        first -= 1
    return first, after


def trim_to_fit(messages: list[Message]) -> list[Message]:
    """The last messages, as many as the model can read, and always the newest request."""
    first, after = newest_request(messages)
    messages_left = messages
    for start, message in enumerate(messages):
        # A result needs its call, and a conversation begins with a request.
        if message.role == "tool" or (start < first and message.role == "assistant"):
            continue
        messages_left = messages[first:after] if start >= after else []
        messages_left = [*messages_left, *messages[start:]]
        # Four characters are about one token.
        if sum(len(str(sent)) for sent in messages_left) // 4 <= MAX_CONTEXT_TOKENS:
            break
    return messages_left


def note(messages: list[Message]) -> str:
    """The note that replaces messages that are not sent: their number."""
    count = len(messages)
    text = "1 earlier message is" if count == 1 else f"{count} earlier messages are"
    return f"({text} left out here.)"


def note_digest(messages: list[Message]) -> str:
    """The note that replaces messages that are not sent: the first line of each."""
    lines = ["Earlier, in short:"]
    for message in messages:
        line = " ".join(message_text(message).split())
        if len(line) > 120:
            line = line[:119].rstrip() + "…"
        if line:
            lines.append(f"- {speaker(message)}: {line}")
    return "\n".join(lines)


def in_context(messages: list[Message]) -> list[Message]:
    """Select the messages to send: the whole conversation, if it fits."""
    return trim_to_fit(messages)


def in_context_fresh(messages: list[Message]) -> list[Message]:
    """Select the messages to send: the newest request, with the calls and results since."""
    first, _ = newest_request(messages)
    return trim_to_fit(messages[first:])


def in_context_window(messages: list[Message]) -> list[Message]:
    """Select the messages to send: the newest request and the last ones, with a note for the rest."""
    first, after = newest_request(messages)
    start = max(len(messages) - MAX_MESSAGES, 0)
    while start > 0 and messages[start].role == "tool":
        start -= 1  # a result needs its call
    selected: list[Message] = []
    left_out: list[Message] = []
    for place, message in enumerate(messages):
        if place < start and not first <= place < after:
            left_out.append(message)
            continue
        if left_out:
            selected.append(Message("note", note(left_out)))
            left_out = []
        selected.append(message)
    return trim_to_fit(selected)
