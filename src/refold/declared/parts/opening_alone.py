"""The beginning of a transcript for a program that takes the system prompt apart."""

GUIDE = (
    "Below is a conversation up to now. Write the assistant's next message, "
    "and nothing else: no name or heading before it."
)


def opening() -> str:
    """What a transcript begins with. The system prompt is given apart."""
    return GUIDE
