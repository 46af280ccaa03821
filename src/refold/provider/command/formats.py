"""How a transcript is written: plain, Markdown, JSON or XML.

Pure. Whatever a message says, it cannot pass for another message: in each
format the marks between messages are escaped, or longer than any in the words.
What is told at all says `transcript`.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from refold.provider.command.spec import Format
from refold.provider.command.transcript import Said

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


def written(told: Sequence[Said], form: Format) -> str:
    return _FORMATS[form](told)


def _plain(told: Sequence[Said]) -> str:
    """A line that begins like a speaker's gets a backslash before the name."""
    return "\n\n".join(
        f"{_NAMES[said.speaker]}: " + _SPEAKER.sub(r"\1\\\2", _lines(said.text))
        for said in told
    )


def _markdown(told: Sequence[Said]) -> str:
    """The fence around a message is longer than any in it."""
    return "\n\n".join(_fenced(said) for said in told)


def _fenced(said: Said) -> str:
    text = _lines(said.text)
    fence = "`" * max((len(run) + 1 for run in _FENCES.findall(text)), default=3)
    return f"## {_NAMES[said.speaker]}\n\n{fence}text\n{text}\n{fence}"


def _json(told: Sequence[Said]) -> str:
    found = [
        msgspec.json.encode({"role": said.speaker, "content": said.text}).decode()
        for said in told
    ]
    return "[\n" + ",\n".join(found) + "\n]"


def _xml(told: Sequence[Said]) -> str:
    """In CDATA sections the words stay as they are: code, and calls in tags, too."""
    return "\n".join(("<conversation>", *map(_element, told), "</conversation>"))


def _element(said: Said) -> str:
    text = _NO_XML.sub("\N{REPLACEMENT CHARACTER}", _lines(said.text))
    text = text.replace("]]>", "]]]]><![CDATA[>")
    return f'<message role="{said.speaker}"><![CDATA[{text}]]></message>'


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


_FORMATS: Mapping[Format, Callable[[Sequence[Said]], str]] = {
    "plain": _plain,
    "markdown": _markdown,
    "json": _json,
    "xml": _xml,
}
