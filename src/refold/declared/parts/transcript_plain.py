"""The context format `plain`."""

import re

# A line of a message that looks like the beginning of another one.
SPEAKER = re.compile(
    r"^([^\S\n]*)(\\*(?:System|User|Assistant|Note)\s*:)", re.IGNORECASE | re.MULTILINE
)


def transcript(messages: list[tuple[str, str]]) -> str:
    """The conversation as text: `User: ...`, `Assistant: ...`."""
    return "\n\n".join(
        f"{speaker.title()}: " + SPEAKER.sub(r"\1\\\2", text)
        for speaker, text in messages
    )
