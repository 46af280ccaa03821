"""The prompt of a program: the conversation as plain text, Markdown, JSON or XML.

In the mode `continue` the whole conversation is written at every step, so the text of
each message is cached by object identity, as wires do. The other modes (`sliding`,
`summarize`) change from step to step and are written again. Safe to use from threads.

`ContextLimiter` is the same for providers that take messages: it sends only the messages of the mode,
or all of them as one text.
"""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from threading import Lock
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.provider import sanitize
from refold.provider.command.spec import ConversationFormat
from refold.provider.encoding_cache import begins_with
from refold.provider.port import Closable, Delta, Provider, Request
from refold.provider.settings import Context, Format
from refold.values.growing import Log
from refold.values.messages import (
    Image,
    Message,
    Part,
    StoredMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.values.printable_names import shorten

_DEFAULT_WINDOW = 20  # messages
# Otherwise a model may imitate how calls are described.
_CALLS_NOTE = (
    "Calls and results are described in brackets. Make a call with the tools that you are "
    "given, never as text."
)


class Prompts:
    """Renders prompts. Dropping it loses only cached text."""

    def __init__(self, format_: ConversationFormat) -> None:
        self._context: Context = format_.context or "continue"
        self._format: Format = format_.format or "plain"
        self._window = format_.window
        self._form = transcript_form(self._format)
        self._known: list[StoredMessage] = []
        self._written: list[str] = []  # of each of them, with what stands before it
        self._lock = Lock()

    def prompt(self, messages: Sequence[StoredMessage], system: str = "") -> str:
        """The whole prompt of a program; `system` is at its top, if any."""
        if self._context != "continue":
            lines = transcript(messages, self._context, self._window, system)
            return format_transcript(lines, self._format)
        top = self._form.before + self._form.format_line(guide(system))
        with self._lock:
            self._write(messages)
            return "".join((top, *self._written, self._form.after))

    def _write(self, messages: Sequence[StoredMessage]) -> None:
        known = self._known
        while known and not begins_with(messages, len(known), known[0], known[-1]):
            known.pop()
            self._written.pop()
        for spoken in messages[len(self._known) :]:
            pieces = map(self._form.format_line, message_lines(spoken.message))
            self._written.append("".join(self._form.between + piece for piece in pieces))
            self._known.append(spoken)


_SPEAKER_NAMES = {
    "system": "System",
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "note": "Note",
}
# Every character that some reader takes for the end of a line.
_LINE_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_SPEAKER_PATTERN = re.compile(
    rf"(?:\A|(?<=[{_LINE_BREAKS}]))([^\S{_LINE_BREAKS}]*)(\\*(?:{'|'.join(_SPEAKER_NAMES.values())})\s*[::])",
    re.IGNORECASE,
)
_FENCE_PATTERN = re.compile(r"`{3,}")
# What XML 1.0 cannot say in any way.
_NOT_XML_PATTERN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


Speaker: TypeAlias = Literal["system", "user", "assistant", "tool", "note"]


class TranscriptLine(Struct, frozen=True):
    speaker: Speaker
    text: str


class TranscriptForm(Struct, frozen=True):
    """How one message is written, and the text between, before and after messages."""

    format_line: Callable[[TranscriptLine], str]
    between: str = "\n\n"
    before: str = ""
    after: str = ""


def transcript_form(name: Format) -> TranscriptForm:
    match name:
        case "plain":
            return TranscriptForm(_escape_speaker)
        case "markdown":
            return TranscriptForm(_markdown)
        case "json":
            return TranscriptForm(_json, ",\n", "[\n", "\n]")
        case "xml":
            return TranscriptForm(_xml, "\n", "<conversation>\n", "\n</conversation>")


def format_transcript(lines: Sequence[TranscriptLine], name: Format) -> str:
    layout = transcript_form(name)
    return (
        layout.before + layout.between.join(map(layout.format_line, lines)) + layout.after
    )


def _escape_speaker(line: TranscriptLine) -> str:
    """A line that begins like a speaker's gets a backslash before the name."""
    return f"{_SPEAKER_NAMES[line.speaker]}: " + _SPEAKER_PATTERN.sub(
        r"\1\\\2", _lines(line.text)
    )


def _markdown(line: TranscriptLine) -> str:
    """The fence around a message is longer than any in it."""
    text = _lines(line.text)
    fence = "`" * max((len(run) + 1 for run in _FENCE_PATTERN.findall(text)), default=3)
    return f"## {_SPEAKER_NAMES[line.speaker]}\n\n{fence}text\n{text}\n{fence}"


def _json(line: TranscriptLine) -> str:
    return msgspec.json.encode({"role": line.speaker, "content": line.text}).decode()


def _xml(line: TranscriptLine) -> str:
    """In CDATA sections text stays as it is: code, and calls in tags, too."""
    text = _NOT_XML_PATTERN.sub("\N{REPLACEMENT CHARACTER}", _lines(line.text))
    text = text.replace("]]>", "]]]]><![CDATA[>")
    return f'<message role="{line.speaker}"><![CDATA[{text}]]></message>'


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


GUIDE_TEXT = (
    "Below is a conversation up to now. Write the assistant's next message, "
    "and nothing else: no name or heading before it."
)
_DIGEST_CHARS = 120  # of a message in a summary
# Results that came back as a person's words begin so.
_RESULT_OPENERS = ("<tool_result", "<tool_response")


def transcript(
    messages: Sequence[StoredMessage], context: Context, window: int, system: str = ""
) -> tuple[TranscriptLine, ...]:
    """The messages in their order. They begin with the guide, and `system` if any."""
    conversation = [spoken.message for spoken in messages]
    whole = full_message_indices(conversation, context, max(window, 1))
    lines = [guide(system)]
    gap: list[Message] = []
    for place, message in enumerate(conversation):
        if place not in whole:
            gap.append(message)
            continue
        lines += replacement_lines(gap, context)
        gap = []
        lines += message_lines(message)
    return tuple(lines)


def guide(system: str = "") -> TranscriptLine:
    """The first line of a transcript, which explains it to the model."""
    addition = f"\n\n{sanitize.text(system)}" if system.strip() else ""
    return TranscriptLine("system", f"{GUIDE_TEXT}{addition}")


def message_lines(message: Message) -> list[TranscriptLine]:
    """The text of a message; nothing for a response without any."""
    words = "\n\n".join(filter(None, map(_part_text, message.parts)))
    if not words.strip():
        return (
            []
            if message.role == "assistant"
            else [TranscriptLine(message.role, "(no words)")]
        )
    return [TranscriptLine(message.role, words)]


def full_message_indices(
    conversation: Sequence[Message], context: Context, window: int
) -> set[int]:
    """The indices of the messages that are passed in full."""
    first, after = _newest_range(conversation)
    match context:
        case "continue":
            return set(range(len(conversation)))
        case "fresh":
            return set(range(first, len(conversation)))
        case "sliding" | "summarize":
            start = max(len(conversation) - window, 0)
            while start > 0 and _is_result(conversation[start]):
                start -= 1
            return {*range(first, after), *range(start, len(conversation))}


def _newest_range(conversation: Sequence[Message]) -> tuple[int, int]:
    """Where the newest message of the user begins and ends."""
    after = len(conversation)
    while after > 0 and not _is_user_message(conversation[after - 1]):
        after -= 1
    first = after
    while first > 0 and _is_user_message(conversation[first - 1]):
        first -= 1
    return first, after


def _is_user_message(message: Message) -> bool:
    return message.role == "user" and not _is_result(message)


def _is_result(message: Message) -> bool:
    return message.role == "tool" or (
        message.role == "user"
        and (
            message.text.lstrip().startswith(_RESULT_OPENERS)
            or any(isinstance(part, ToolResult) for part in message.parts)
        )
    )


def _part_text(part: Part) -> str:
    match part:
        case Text(text):
            return sanitize.text(text) if text.strip() else ""
        case Image():
            return _image_text(part)
        case Thinking():
            return ""
        case ToolCall():
            call = sanitize.original_call(part)
            shown = bytes(sanitize.arguments(call.arguments)).decode("utf-8", "replace")
            return f"[calls {sanitize.name(call.name)} with {sanitize.text(shown)}]"
        case ToolResult(_, text, failed, pictures):
            head = "[the call failed]" if failed else "[the result]"
            return "\n".join((head, sanitize.text(text), *map(_image_text, pictures)))


def _image_text(image: Image) -> str:
    called = sanitize.text(image.name) or "without a name"
    return f"[an image, {called}, that cannot be shown here]"


def replacement_lines(gap: Sequence[Message], context: Context) -> list[TranscriptLine]:
    """What replaces messages that are not included in full."""
    if not gap or context == "fresh":
        return []
    if context == "sliding":
        count = (
            "1 earlier message is" if len(gap) == 1 else f"{len(gap)} earlier messages are"
        )
        return [TranscriptLine("note", f"({count} left out here.)")]
    lines = [_digest(line) for message in gap for line in message_lines(message)]
    return (
        [TranscriptLine("note", "Earlier, in short:\n" + "\n".join(lines))] if lines else []
    )


def _digest(line: TranscriptLine) -> str:
    return f"- {line.speaker}: {shorten(' '.join(line.text.split()), _DIGEST_CHARS)}"


class ContextLimiter:
    """Wraps a provider: it gets the messages that the format `wanted` selects."""

    def __init__(self, inner: Provider, format_: ConversationFormat) -> None:
        self.inner, self._wanted = inner, format_

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        tools = bool(request.tools)
        messages = select_messages(request.messages, self._wanted, tools=tools)
        return self.inner.stream(replace(request, messages=messages))

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()


def select_messages(
    conversation: Sequence[StoredMessage], format_: ConversationFormat, *, tools: bool
) -> Log[StoredMessage]:
    """The messages that are sent. A single message is sent as it is, in every format."""
    context, window = format_.context or "continue", format_.window or _DEFAULT_WINDOW
    messages = [spoken.message for spoken in conversation]
    places = full_message_indices(messages, context, window)
    chosen, gap = list[StoredMessage](), list[StoredMessage]()
    for place, spoken in enumerate(conversation):
        if place not in places:
            gap.append(spoken)
            continue
        for note in replacement_lines([stored.message for stored in gap], context):
            chosen.append(StoredMessage(gap[-1].seq, Message("user", (Text(note.text),))))
        gap = []
        chosen.append(spoken)
    if not format_.format or len(chosen) < 2:
        return Log(chosen)
    lines = transcript(conversation, context, window, _CALLS_NOTE if tools else "")
    text = format_transcript(lines, format_.format)
    images = (p for s in chosen for p in s.message.parts if isinstance(p, Image))
    parts: tuple[Part, ...] = (Text(text), *images)
    return Log([StoredMessage(chosen[-1].seq, Message("user", parts))])
