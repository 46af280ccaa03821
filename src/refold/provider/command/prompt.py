"""Renders the conversation as the prompt of a program: plain text, Markdown, JSON or XML.

In the mode `continue` each prompt contains the whole conversation, so the text of each message
is cached by object identity, as in wires. In the modes `sliding` and `summarize` earlier parts
of the prompt change at each step, so nothing is cached. The functions are thread-safe.

`ContextLimiter` selects messages in the same way for providers that take messages.
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

_SHORTEST_FENCE = 3  # characters
_DEFAULT_WINDOW = 20  # the number of messages
# Without this note a model may imitate how calls are described.
_CALLS_NOTE = (
    "Calls and results are described in brackets. Make a call with the tools that you are "
    "given, never as text."
)


class Prompts:
    """Renders prompts, and caches the text of each message in the mode `continue`."""

    def __init__(self, format_: ConversationFormat) -> None:
        self._context: Context = format_.context or "continue"
        self._format_name: Format = format_.format or "plain"
        self._window = format_.window
        self._form = transcript_form(self._format_name)
        self._messages: list[StoredMessage] = []
        # the text of each message, with the separator before it
        self._texts: list[str] = []
        self._lock = Lock()

    def prompt(self, messages: Sequence[StoredMessage], system: str = "") -> str:
        """Return the prompt of a program: the guide with `system`, then the conversation."""
        if self._context != "continue":
            lines = transcript(messages, self._context, self._window, system)
            return format_transcript(lines, self._format_name)
        top = self._form.before + self._form.format_line(guide(system))
        with self._lock:
            self._extend_texts(messages)
            return "".join((top, *self._texts, self._form.after))

    def _extend_texts(self, messages: Sequence[StoredMessage]) -> None:
        """Update the cached texts: drop texts of other messages, and add missing ones."""
        cached = self._messages
        while cached and not begins_with(messages, len(cached), cached[0], cached[-1]):
            cached.pop()
            self._texts.pop()
        for stored in messages[len(cached) :]:
            pieces = map(self._form.format_line, message_lines(stored.message))
            self._texts.append("".join(self._form.between + piece for piece in pieces))
            cached.append(stored)


_SPEAKER_NAMES = {
    "system": "System",
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "note": "Note",
}
# All characters that some program treats as the end of a line.
_LINE_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_SPEAKER_PATTERN = re.compile(
    rf"(?:\A|(?<=[{_LINE_BREAKS}]))([^\S{_LINE_BREAKS}]*)(\\*(?:{'|'.join(_SPEAKER_NAMES.values())})\s*[::])",
    re.IGNORECASE,
)
_FENCE_PATTERN = re.compile(r"`{3,}")
# Characters that XML 1.0 cannot represent, not even escaped.
_NOT_XML_PATTERN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


Speaker: TypeAlias = Literal["system", "user", "assistant", "tool", "note"]


class TranscriptLine(Struct, frozen=True):
    speaker: Speaker
    text: str


class TranscriptForm(Struct, frozen=True):
    """How a message is written in a transcript, and the text around and between messages."""

    format_line: Callable[[TranscriptLine], str]
    between: str = "\n\n"
    before: str = ""
    after: str = ""


def transcript_form(name: Format) -> TranscriptForm:
    """Return the form of a transcript in one of the formats of the settings."""
    match name:
        case "plain":
            return TranscriptForm(_escape_speaker)
        case "markdown":
            return TranscriptForm(_markdown)
        case "json":
            return TranscriptForm(_json, between=",\n", before="[\n", after="\n]")
        case "xml":
            return TranscriptForm(
                _xml, between="\n", before="<conversation>\n", after="\n</conversation>"
            )


def format_transcript(lines: Sequence[TranscriptLine], name: Format) -> str:
    form = transcript_form(name)
    text = form.between.join(map(form.format_line, lines))
    return f"{form.before}{text}{form.after}"


def _escape_speaker(line: TranscriptLine) -> str:
    """Return a message as text that begins with its speaker's name.

    A line of the message that begins like a speaker's name gets a backslash first.
    """
    text = _SPEAKER_PATTERN.sub(r"\1\\\2", _normalize_line_ends(line.text))
    return f"{_SPEAKER_NAMES[line.speaker]}: {text}"


def _markdown(line: TranscriptLine) -> str:
    """Return a message in a Markdown fence that is longer than any fence inside it."""
    text = _normalize_line_ends(line.text)
    inner_fences = _FENCE_PATTERN.findall(text)
    fence = "`" * max((len(inner) + 1 for inner in inner_fences), default=_SHORTEST_FENCE)
    return f"## {_SPEAKER_NAMES[line.speaker]}\n\n{fence}text\n{text}\n{fence}"


def _json(line: TranscriptLine) -> str:
    return msgspec.json.encode({"role": line.speaker, "content": line.text}).decode()


def _xml(line: TranscriptLine) -> str:
    """Return a message in CDATA sections, so that code and tags in its text need no escapes."""
    text = _normalize_line_ends(line.text)
    text = _NOT_XML_PATTERN.sub("\N{REPLACEMENT CHARACTER}", text)
    text = text.replace("]]>", "]]]]><![CDATA[>")  # a section cannot contain its own end
    return f'<message role="{line.speaker}"><![CDATA[{text}]]></message>'


def _normalize_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


GUIDE_TEXT = (
    "Below is a conversation up to now. Write the assistant's next message, "
    "and nothing else: no name or heading before it."
)
_DIGEST_CHARS = 120  # the length of each message in a summary
# Results that were sent as a user's message begin with these.
_RESULT_OPENERS = ("<tool_result", "<tool_response")


def transcript(
    messages: Sequence[StoredMessage], context: Context, window: int, system: str = ""
) -> tuple[TranscriptLine, ...]:
    """Return the lines of a conversation, the first of which is the `guide` with `system`.

    `context` and `window` select the messages that are included in full.
    """
    conversation = [stored.message for stored in messages]
    full_indices = full_message_indices(conversation, context, max(window, 1))
    lines = [guide(system)]
    gap: list[Message] = []
    for index, message in enumerate(conversation):
        if index not in full_indices:
            gap.append(message)
            continue
        lines += replacement_lines(gap, context)
        gap = []
        lines += message_lines(message)
    return tuple(lines)


def guide(system: str = "") -> TranscriptLine:
    """Return the first line of a transcript: an explanation for the model, and `system` if any."""
    addition = f"\n\n{sanitize.text(system)}" if system.strip() else ""
    return TranscriptLine("system", f"{GUIDE_TEXT}{addition}")


def message_lines(message: Message) -> list[TranscriptLine]:
    """Return the lines of a transcript for one message; [] for a response without text.

    A message of the user or a tool without text has the text "(no words)".
    """
    words = "\n\n".join(filter(None, map(_part_text, message.parts)))
    if words.strip():
        return [TranscriptLine(message.role, words)]
    if message.role == "assistant":
        return []
    return [TranscriptLine(message.role, "(no words)")]


def full_message_indices(
    conversation: Sequence[Message], context: Context, window: int
) -> set[int]:
    """Return the indices of the messages that the mode `context` includes in full.

    `window` is the number of newest messages that the modes `sliding` and `summarize` include.
    """
    newest_start, newest_end = _newest_range(conversation)
    match context:
        case "continue":
            return set(range(len(conversation)))
        case "fresh":
            return set(range(newest_start, len(conversation)))
        case "sliding" | "summarize":
            start = max(len(conversation) - window, 0)
            # Results are passed together with the response that has their calls.
            while start > 0 and _is_result(conversation[start]):
                start -= 1
            newest = range(newest_start, newest_end)
            return {*newest, *range(start, len(conversation))}


def _newest_range(conversation: Sequence[Message]) -> tuple[int, int]:
    """Return the range of indices of the user's newest messages, as (start, end).

    They are the last messages of the user with no response between them.
    """
    end = len(conversation)
    while end > 0 and not _is_user_message(conversation[end - 1]):
        end -= 1
    start = end
    while start > 0 and _is_user_message(conversation[start - 1]):
        start -= 1
    return start, end


def _is_user_message(message: Message) -> bool:
    return message.role == "user" and not _is_result(message)


def _is_result(message: Message) -> bool:
    """Whether a message contains results of calls, even if its role is that of the user."""
    if message.role != "user":
        return message.role == "tool"
    if any(isinstance(part, ToolResult) for part in message.parts):
        return True
    return message.text.lstrip().startswith(_RESULT_OPENERS)


def _part_text(part: Part) -> str:
    """Return the text of a part of a message; "" for thinking, which is not passed on."""
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
    """Return the lines that replace the messages in `gap`, which are not included in full.

    Depending on `context`, that is the number of messages, a summary, or nothing.
    """
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
    """Wraps a provider, and sends it only the messages that `format_` selects."""

    def __init__(self, inner: Provider, format_: ConversationFormat) -> None:
        self.inner, self._conversation_format = inner, format_

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response to a request with only the messages that the settings select."""
        tools = bool(request.tools)
        messages = select_messages(request.messages, self._conversation_format, tools=tools)
        return self.inner.stream(replace(request, messages=messages))

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()


def select_messages(
    conversation: Sequence[StoredMessage], format_: ConversationFormat, *, tools: bool
) -> Log[StoredMessage]:
    """Return the messages that `format_` selects, or one message that renders all of them.

    A single message is returned unchanged. `tools` says whether the model can call tools.
    """
    context, window = format_.context or "continue", format_.window or _DEFAULT_WINDOW
    messages = [stored.message for stored in conversation]
    full_indices = full_message_indices(messages, context, window)
    selected: list[StoredMessage] = []
    gap: list[StoredMessage] = []  # the messages since the last selected one
    for index, stored in enumerate(conversation):
        if index not in full_indices:
            gap.append(stored)
            continue
        for note in replacement_lines([omitted.message for omitted in gap], context):
            selected.append(StoredMessage(gap[-1].seq, Message("user", (Text(note.text),))))
        gap = []
        selected.append(stored)
    if not format_.format or len(selected) < 2:
        return Log(selected)
    lines = transcript(conversation, context, window, _CALLS_NOTE if tools else "")
    text = format_transcript(lines, format_.format)
    images = (p for s in selected for p in s.message.parts if isinstance(p, Image))
    parts: tuple[Part, ...] = (Text(text), *images)
    return Log([StoredMessage(selected[-1].seq, Message("user", parts))])
