"""The context format `markdown`."""

import re


def transcript(messages: list[tuple[str, str]]) -> str:
    """The conversation as Markdown: a heading for each message, and its text fenced."""
    return "\n\n".join(section(speaker, text) for speaker, text in messages)


def section(speaker: str, text: str) -> str:
    """One message. Its fence is longer than any fence in it, so that it cannot end it."""
    fences = re.findall(r"`{3,}", text)
    fence = "`" * max((len(each) + 1 for each in fences), default=3)
    return f"## {speaker.title()}\n\n{fence}text\n{text}\n{fence}"
