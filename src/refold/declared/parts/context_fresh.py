"""The context mode `fresh`."""

from refold.declared.parts.newest_request import fitting, newest_request
from refold.declared.parts.program_messages import Message


def in_context(messages: list[Message]) -> list[Message]:
    """What is sent: the newest request, with the calls and results since."""
    first, _ = newest_request(messages)
    return fitting(messages[first:])
