"""The note of the context mode `sliding`."""

from refold.declared.parts.program_messages import Message


def note(messages: list[Message]) -> str:
    """What stands for messages that are not sent: their number."""
    count = len(messages)
    many = "1 earlier message is" if count == 1 else f"{count} earlier messages are"
    return f"({many} left out here.)"
