"""What of a talk a program is told: four modes, from all of it to the newest words.

Pure, and no model is called. How what is chosen is written says `formats`. The
newest words of the person are told in every mode, and a result never comes
without the answer that called for it.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.provider import sendable
from refold.provider.command.given import Context
from refold.values.messages import (
    Image,
    Message,
    Part,
    Spoken,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

Speaker: TypeAlias = Literal["system", "user", "assistant", "tool", "note"]

GUIDE = (
    "Below is a conversation up to now. Write the assistant's next message, "
    "and nothing else: no name or heading before it."
)
_DIGEST = 120  # characters of a message in a summary
# Results that came back as a person's words begin so.
_RESULTS = ("<tool_result", "<tool_response")


class TranscriptLine(Struct, frozen=True):
    speaker: Speaker
    text: str


def transcript(
    messages: Sequence[Spoken], context: Context, window: int, system: str = ""
) -> tuple[TranscriptLine, ...]:
    """What is told, in its order. It begins with the guide, and `system` if any."""
    talk = [spoken.message for spoken in messages]
    whole = _whole(talk, context, max(window, 1))
    told = [guide(system)]
    gap: list[Message] = []
    for place, message in enumerate(talk):
        if place not in whole:
            gap.append(message)
            continue
        told += _instead(gap, context)
        gap = []
        told += said(message)
    return tuple(told)


def guide(system: str = "") -> TranscriptLine:
    """What a transcript begins with."""
    more = f"\n\n{sendable.text(system)}" if system.strip() else ""
    return TranscriptLine("system", f"{GUIDE}{more}")


def said(message: Message) -> list[TranscriptLine]:
    """A message in its own words; nothing for an answer without any."""
    words = "\n\n".join(filter(None, map(_words, message.parts)))
    if not words.strip():
        return (
            []
            if message.role == "assistant"
            else [TranscriptLine(message.role, "(no words)")]
        )
    return [TranscriptLine(message.role, words)]


def _whole(talk: Sequence[Message], context: Context, window: int) -> set[int]:
    """The places of those that are told in their own words."""
    first, after = _newest(talk)
    match context:
        case "continue":
            return set(range(len(talk)))
        case "fresh":
            return set(range(first, len(talk)))
        case "sliding" | "summarize":
            start = max(len(talk) - window, 0)
            while start > 0 and _is_result(talk[start]):
                start -= 1
            return {*range(first, after), *range(start, len(talk))}


def _newest(talk: Sequence[Message]) -> tuple[int, int]:
    """Where the newest words of the person begin and end."""
    after = len(talk)
    while after > 0 and not _is_words(talk[after - 1]):
        after -= 1
    first = after
    while first > 0 and _is_words(talk[first - 1]):
        first -= 1
    return first, after


def _is_words(message: Message) -> bool:
    return message.role == "user" and not _is_result(message)


def _is_result(message: Message) -> bool:
    return message.role == "tool" or (
        message.role == "user"
        and (
            message.text.lstrip().startswith(_RESULTS)
            or any(isinstance(part, ToolResult) for part in message.parts)
        )
    )


def _words(part: Part) -> str:
    match part:
        case Text(text):
            return sendable.text(text) if text.strip() else ""
        case Image():
            return _picture(part)
        case Thinking():
            return ""
        case ToolCall():
            call = sendable.as_made(part)
            shown = bytes(sendable.arguments(call.arguments)).decode("utf-8", "replace")
            return f"[calls {sendable.name(call.name)} with {sendable.text(shown)}]"
        case ToolResult(_, text, failed, pictures):
            head = "[the call failed]" if failed else "[the result]"
            return "\n".join((head, sendable.text(text), *map(_picture, pictures)))


def _picture(image: Image) -> str:
    called = sendable.text(image.name) or "without a name"
    return f"[a picture, {called}, that cannot be shown here]"


def _instead(gap: Sequence[Message], context: Context) -> list[TranscriptLine]:
    """What stands for messages that are not told whole."""
    if not gap or context == "fresh":
        return []
    if context == "sliding":
        count = (
            "1 earlier message is" if len(gap) == 1 else f"{len(gap)} earlier messages are"
        )
        return [TranscriptLine("note", f"({count} left out here.)")]
    lines = [_digest(one) for message in gap for one in said(message)]
    return (
        [TranscriptLine("note", "Earlier, in short:\n" + "\n".join(lines))] if lines else []
    )


def _digest(one: TranscriptLine) -> str:
    line = " ".join(one.text.split())
    line = line if len(line) <= _DIGEST else line[: _DIGEST - 1].rstrip() + "…"
    return f"- {one.speaker}: {line}"
