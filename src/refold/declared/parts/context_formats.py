"""Writes the conversation as one text, in one of several formats.

The format `plain` is `transcript`; `markdown`, `json` and `xml` are `transcript_…`.
"""

import json
import re

from refold.declared.parts.context_modes import in_context as select_messages
from refold.declared.parts.context_modes import message_text, speaker
from refold.declared.parts.messages import Message

# The beginning of a line that looks like the beginning of a message, such as "User:".
SPEAKER = re.compile(
    r"^([^\S\n]*)(\\*(?:System|User|Assistant|Note)\s*:)", re.IGNORECASE | re.MULTILINE
)


def transcript(messages: list[tuple[str, str]]) -> str:
    """Return the conversation as plain text, with `User: ...` and `Assistant: ...`."""
    return "\n\n".join(
        f"{speaker.title()}: " + SPEAKER.sub(r"\1\\\2", text)
        for speaker, text in messages
    )


def transcript_markdown(messages: list[tuple[str, str]]) -> str:
    """Return the conversation as Markdown, each message with a heading and a fence."""
    return "\n\n".join(section(speaker, text) for speaker, text in messages)


def section(speaker: str, text: str) -> str:
    """Return a message as Markdown. Its fence is longer than any in its text."""
    fences = re.findall(r"`{3,}", text)
    fence = "`" * max((len(run) + 1 for run in fences), default=3)
    return f"## {speaker.title()}\n\n{fence}text\n{text}\n{fence}"


def transcript_json(messages: list[tuple[str, str]]) -> str:
    """Return the conversation as a JSON list, one message on each line."""
    lines = [
        json.dumps(
            {"role": speaker, "content": text},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for speaker, text in messages
    ]
    return "[\n" + ",\n".join(lines) + "\n]"


# Characters that XML 1.0 has no way to write.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def transcript_xml(messages: list[tuple[str, str]]) -> str:
    """Return the conversation as XML. CDATA leaves code and calls in tags unchanged."""
    lines = ["<conversation>"]
    for role, text in messages:
        text = NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
        text = text.replace("]]>", "]]]]><![CDATA[>")
        lines.append(f'<message role="{role}"><![CDATA[{text}]]></message>')
    return "\n".join([*lines, "</conversation>"])


TEXT_GUIDE = """\
Below is a conversation up to now. Write the assistant's next message, and nothing else: \
no name or heading before it.

Calls and results are described in brackets. Make a call with the tools that you are \
given, never as text."""


def in_context_as_text(messages: list[Message]) -> list[Message]:
    """Select messages, and join them to one. A single message stays unchanged."""
    selected = select_messages(messages)
    if len(selected) < 2:
        return selected
    lines = [(speaker(message), message_text(message)) for message in selected]
    return [Message("user", transcript([("system", TEXT_GUIDE), *lines]))]
