"""Which messages a model needs in any case, and how many it can read."""

from refold.declared.parts.program_messages import Message
from refold.declared.parts.settings import MAX_CONTEXT_TOKENS


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
    kept = messages
    for start, message in enumerate(messages):
        # A result needs its call, and a conversation begins with a request.
        if message.role == "tool" or (start < first and message.role == "assistant"):
            continue
        kept = messages[first:after] if start >= after else []
        kept = [*kept, *messages[start:]]
        # Four characters are about one token.
        if sum(len(str(each)) for each in kept) // 4 <= MAX_CONTEXT_TOKENS:
            break
    return kept
