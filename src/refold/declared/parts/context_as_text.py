"""The conversation as one text, for an API that is to get it in a format."""

from refold.declared.parts.context_continue import in_context as selected
from refold.declared.parts.program_messages import Message
from refold.declared.parts.transcript_plain import transcript
from refold.declared.parts.words_native import message_text, speaker

GUIDE = """\
Below is a conversation up to now. Write the assistant's next message, and nothing else: \
no name or heading before it.

Calls and results are described in brackets. Make a call with the tools that you are \
given, never as text."""


def in_context(messages: list[Message]) -> list[Message]:
    """What is sent: the selected messages as one text. A single one stays as it is."""
    kept = selected(messages)
    if len(kept) < 2:
        return kept
    lines = [(speaker(each), message_text(each)) for each in kept]
    return [Message("user", transcript([("system", GUIDE), *lines]))]
