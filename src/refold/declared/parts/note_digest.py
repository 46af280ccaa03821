"""The note of the context mode `summarize`."""

from refold.declared.parts.program_messages import Message
from refold.declared.parts.words_native import message_text, speaker


def note(messages: list[Message]) -> str:
    """What stands for messages that are not sent: the beginning of each, as a line."""
    lines = ["Earlier, in short:"]
    for message in messages:
        line = " ".join(message_text(message).split())
        if len(line) > 120:
            line = line[:119].rstrip() + "…"
        if line:
            lines.append(f"- {speaker(message)}: {line}")
    return "\n".join(lines)
