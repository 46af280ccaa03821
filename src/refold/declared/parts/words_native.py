"""Messages in words, for an API that has fields of its own for calls and results."""

import json

from refold.declared.parts.program_messages import Message


def speaker(message: Message) -> str:
    """Who has written a message."""
    return message.role


def words(message: Message) -> str:
    """All that a message says, as text."""
    calls = [
        f"[calls {call.name} with {json.dumps(call.arguments, ensure_ascii=False)}]"
        for call in message.calls
    ]
    results = [f"[the result]\n{result.text}" for result in message.results]
    return "\n\n".join(filter(None, [message.text, *calls, *results]))
