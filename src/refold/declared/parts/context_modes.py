"""Selects the messages that are sent to the model, depending on the context mode.

`in_context` is the mode `continue`, `in_context_fresh` the mode `fresh`. The modes
`sliding` and `summarize` are `in_context_window`, with `note` or `note_digest`.
"""

import json

from refold.declared.parts.messages import Call, Message
from refold.declared.parts.settings import MAX_CONTEXT_TOKENS, MAX_MESSAGES


def speaker(message: Message) -> str:
    """Return the role of a message, such as "user"."""
    return message.role


def message_text(message: Message) -> str:
    """Return the text, the calls and the results of a message as one text."""
    calls = [f"[calls {call.name} with {compact(call)}]" for call in message.calls]
    results = [
        f"[the {'call failed' if result.failed else 'result'}]\n{result.text}"
        for result in message.results
    ]
    return "\n\n".join(filter(None, [message.text, *calls, *results]))


def compact(call: Call) -> str:
    """Return the arguments of a call as JSON on one line."""
    return json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))


def newest_request(messages: list[Message]) -> tuple[int, int]:
    """Return where the newest messages of the user begin and end, as indices."""
    after = len(messages)
    while after > 0 and messages[after - 1].role != "user":
        after -= 1
    first = after
    while first > 0 and messages[first - 1].role == "user":
        first -= 1
    return first, after


def trim_to_fit(messages: list[Message]) -> list[Message]:
    """Return the newest request of the user, and as many of the last messages as fit."""
    first, after = newest_request(messages)
    selected = messages
    for start, message in enumerate(messages):
        # A result needs its call, and a conversation begins with a request.
        if message.role == "tool" or (message.role == "assistant" and start < first):
            continue
        selected = messages[start:]
        if start >= after:
            selected = [*messages[first:after], *selected]
        # Four characters are about one token.
        if sum(len(str(sent)) for sent in selected) // 4 <= MAX_CONTEXT_TOKENS:
            break
    return selected


def note(messages: list[Message]) -> str:
    """Return a note that says how many messages are not sent."""
    count = len(messages)
    text = "1 earlier message is" if count == 1 else f"{count} earlier messages are"
    return f"({text} left out here.)"


def note_digest(messages: list[Message]) -> str:
    """Return a note with the beginning of each message that is not sent."""
    lines = ["Earlier, in short:"]
    for message in messages:
        line = " ".join(message_text(message).split())
        if len(line) > 120:
            line = line[:119].rstrip() + "…"
        if line:
            lines.append(f"- {speaker(message)}: {line}")
    return "\n".join(lines)


def in_context(messages: list[Message]) -> list[Message]:
    """Return the messages to send: all of them, or the last ones that fit."""
    return trim_to_fit(messages)


def in_context_fresh(messages: list[Message]) -> list[Message]:
    """Return the messages to send: the user's newest request, and what follows it."""
    first, _ = newest_request(messages)
    return trim_to_fit(messages[first:])


def in_context_window(messages: list[Message]) -> list[Message]:
    """Return the messages to send: the newest request, the last ones, and notes."""
    first, after = newest_request(messages)
    start = max(len(messages) - MAX_MESSAGES, 0)
    while start > 0 and messages[start].role == "tool":
        start -= 1  # a result needs its call
    selected: list[Message] = []
    left_out: list[Message] = []
    for index, message in enumerate(messages):
        if index < start and not first <= index < after:
            left_out.append(message)
            continue
        if left_out:
            selected.append(Message("note", note(left_out)))
            left_out = []
        selected.append(message)
    return trim_to_fit(selected)
