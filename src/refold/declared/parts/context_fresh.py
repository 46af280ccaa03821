"""The context mode `fresh`."""

from refold.declared.parts.newest_request import newest_request, trim_to_fit
from refold.declared.parts.program_messages import Message


def in_context(messages: list[Message]) -> list[Message]:
    """What is sent: the newest request, with the calls and results since."""
    first, _ = newest_request(messages)
    return trim_to_fit(messages[first:])
