"""Text as it lies in a file, and as a model handles it.

A model writes LF and no byte order mark. A file may have CRLF, a mark, UTF-16,
or bytes that are no UTF-8. What is not changed keeps its bytes.
"""

import codecs
from bisect import bisect_left
from collections.abc import Iterator

from msgspec import Struct

from refold.errors import ToolFailed
from refold.values.clean import clean

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_KNOWN_BY_NAME = {"utf-8": "UTF-8", "latin-1": "Latin-1"}
_LOOKED_AT = 8192  # bytes in which a NUL means: no text


class EditableText(Struct, frozen=True):
    """The text of a file, line ends as they are, and how it becomes bytes."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def plain(self) -> str:
        """The text with LF alone, as a model sees it."""
        return self.text.replace("\r\n", "\n")

    @property
    def crlf(self) -> bool:
        """Do most lines end in CRLF?"""
        return self.text.count("\r\n") * 2 > self.text.count("\n")

    @property
    def oddity(self) -> str:
        """What somebody who expects UTF-8 should know, or ""."""
        if clean(self.text) is not self.text:
            return "some bytes are not UTF-8 and are shown as \ufffd"
        if self.encoding != "utf-8":
            return f"the file is {_KNOWN_BY_NAME.get(self.encoding, self.encoding.upper())}"
        return ""

    def encoded(self, text: str) -> bytes:
        """`text`, which has this file's line ends, as bytes of this file."""
        return self.mark + text.encode(self.encoding, _errors(self.encoding))

    def with_ends(self, text: str) -> str:
        """`text`, which has LF, with the line ends of this file."""
        text = text.replace("\r\n", "\n")
        return text.replace("\n", "\r\n") if self.crlf else text

    def replaced(self, places: list[int], old: str, new: str) -> str:
        """`new` instead of `old` at each of `places` in `plain`. The rest stays as it is.

        `old` and `new` have LF; the k-th line of `new` ends like the k-th of `old`.
        """
        returns = list(_returns(self.text))
        text, done, pieces = self.text, 0, list[str]()
        for place in places:
            first = place + bisect_left(returns, place)
            after = place + len(old)
            last = after + bisect_left(returns, after)
            pieces += (text[done:first], self._like(text[first:last], new))
            done = last
        return "".join((*pieces, text[done:]))

    def _like(self, before: str, new: str) -> str:
        ends = [piece.endswith("\r") for piece in before.split("\n")[:-1]]
        if all(end == self.crlf for end in ends):
            return self.with_ends(new)
        lines = new.split("\n")
        ends += [self.crlf] * len(lines)
        joined = (
            line + ("\r\n" if crlf else "\n")
            for line, crlf in zip(lines, ends, strict=False)
        )
        return "".join(joined).removesuffix("\r\n" if ends[len(lines) - 1] else "\n")


def written(content: bytes) -> EditableText | None:
    """The text that `content` is, or None: it is no text."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _exact(content, encoding, mark)
    if b"\0" in content[:_LOOKED_AT]:
        return None
    try:
        return EditableText(content.decode())
    except UnicodeDecodeError:
        text = content.decode(errors="surrogateescape")
        # Good UTF-8 beside bad bytes: a UTF-8 file with damage. Else an older encoding.
        if text.encode(errors="ignore").isascii():
            return EditableText(content.decode("latin-1"), "latin-1")
        return EditableText(text)


def check_sendable(text: str, name: str) -> None:
    """Raise where a model wrote half a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ToolFailed(f"{name} holds half a character (\\u{ord(half):04x}).") from error


def _exact(content: bytes, encoding: str, mark: bytes) -> EditableText | None:
    try:
        text = content[len(mark) :].decode(encoding, _errors(encoding))
    except UnicodeDecodeError:
        return None
    found = EditableText(text, encoding, mark)
    return found if found.encoded(text) == content else None


def _errors(encoding: str) -> str:
    return "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape"


def _returns(text: str) -> Iterator[int]:
    """Where in the text with LF alone the line ends stand that are CRLF."""
    found, before = text.find("\r\n"), 0
    while found >= 0:
        yield found - before
        before += 1
        found = text.find("\r\n", found + 2)
