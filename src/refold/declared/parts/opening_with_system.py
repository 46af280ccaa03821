"""The beginning of a transcript for a program that takes one text only."""

from refold.declared.parts.text_calls import instructions

GUIDE = (
    "Below is a conversation up to now. Write the assistant's next message, "
    "and nothing else: no name or heading before it."
)


def opening() -> str:
    """What a transcript begins with. There is no other place for the system prompt."""
    return f"{GUIDE}\n\n{instructions()}"
