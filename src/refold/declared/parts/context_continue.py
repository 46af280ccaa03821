"""The context mode `continue`."""

from refold.declared.parts.newest_request import trim_to_fit
from refold.declared.parts.program_messages import Message


def in_context(messages: list[Message]) -> list[Message]:
    """What is sent: the whole conversation, as long as it fits."""
    return trim_to_fit(messages)
