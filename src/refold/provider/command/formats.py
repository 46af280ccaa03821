"""How a transcript is written: plain, Markdown, JSON or XML.

Pure. Whatever a message says, it cannot pass for another message: in each
format the marks between messages are escaped, or longer than any in the words.
What is told at all says `transcript`.
"""

import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from refold.provider.command.given import Format
from refold.provider.command.transcript import TranscriptLine

_NAMES = {
    "system": "System",
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "note": "Note",
}
# Every character that some reader takes for the end of a line.
_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_SPEAKER = re.compile(
    rf"(?:\A|(?<=[{_BREAKS}]))([^\S{_BREAKS}]*)(\\*(?:{'|'.join(_NAMES.values())})\s*[::])",
    re.IGNORECASE,
)
_FENCES = re.compile(r"`{3,}")
# What XML 1.0 cannot say in any way.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Form(Struct, frozen=True):
    """How one message is written, and what stands between, before and after them."""

    one: Callable[[TranscriptLine], str]
    between: str = "\n\n"
    before: str = ""
    after: str = ""


def form(name: Format) -> Form:
    match name:
        case "plain":
            return Form(_plain)
        case "markdown":
            return Form(_markdown)
        case "json":
            return Form(_json, ",\n", "[\n", "\n]")
        case "xml":
            return Form(_xml, "\n", "<conversation>\n", "\n</conversation>")


def written(told: Sequence[TranscriptLine], name: Format) -> str:
    found = form(name)
    return found.before + found.between.join(map(found.one, told)) + found.after


def _plain(said: TranscriptLine) -> str:
    """A line that begins like a speaker's gets a backslash before the name."""
    return f"{_NAMES[said.speaker]}: " + _SPEAKER.sub(r"\1\\\2", _lines(said.text))


def _markdown(said: TranscriptLine) -> str:
    """The fence around a message is longer than any in it."""
    text = _lines(said.text)
    fence = "`" * max((len(run) + 1 for run in _FENCES.findall(text)), default=3)
    return f"## {_NAMES[said.speaker]}\n\n{fence}text\n{text}\n{fence}"


def _json(said: TranscriptLine) -> str:
    return msgspec.json.encode({"role": said.speaker, "content": said.text}).decode()


def _xml(said: TranscriptLine) -> str:
    """In CDATA sections the words stay as they are: code, and calls in tags, too."""
    text = _NO_XML.sub("\N{REPLACEMENT CHARACTER}", _lines(said.text))
    text = text.replace("]]>", "]]]]><![CDATA[>")
    return f'<message role="{said.speaker}"><![CDATA[{text}]]></message>'


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
