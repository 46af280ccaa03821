"""Messages in words, for an API that has fields of its own for calls and results."""

import json

from refold.declared.parts.program_messages import Call, Message


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
