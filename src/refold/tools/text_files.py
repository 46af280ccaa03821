"""Text as it is in a file, and as a model reads and writes it.

A model writes LF and no byte order mark. A file may have CRLF, a mark, UTF-16, or bytes
that are not UTF-8. Unchanged parts keep their bytes. Lines are shown with numbers.
`legacy_encodings` finds the encoding of text that is not UTF-8.
"""

import codecs
from bisect import bisect_left
from collections.abc import Iterator

from msgspec import Struct

from refold.errors import ToolFailed
from refold.values.text import clean

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ASCII_BYTES = bytes(range(128))
_MAX_HEAD_BYTES = 8192  # in which a NUL marks binary data


class EditableText(Struct, frozen=True):
    """The text of a file with its original line ends, and how to encode it."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def plain(self) -> str:
        """The text with LF alone, as a model sees it."""
        return self.text.replace("\r\n", "\n")

    @property
    def crlf(self) -> bool:
        """Whether most lines end in CRLF."""
        return self.text.count("\r\n") * 2 > self.text.count("\n")

    @property
    def oddity(self) -> str:
        """A note if the file is not plain UTF-8, or ""."""
        if clean(self.text) is not self.text:
            return "some bytes are not UTF-8 and are shown as \ufffd"
        if self.encoding != "utf-8":
            return f"the file is {self.encoding_name}"
        return ""

    @property
    def encoding_name(self) -> str:
        from refold.tools.legacy_encodings import DISPLAY_NAMES

        return DISPLAY_NAMES[self.encoding]

    def encode(self, text: str) -> bytes:
        """`text`, which has this file's line ends, as bytes of this file."""
        return self.mark + text.encode(self.encoding, _errors(self.encoding))

    def with_ends(self, text: str) -> str:
        """`text`, which has LF, with the line ends of this file."""
        text = text.replace("\r\n", "\n")
        return text.replace("\n", "\r\n") if self.crlf else text

    def replace_at(self, places: list[int], old: str, new: str) -> str:
        """`new` instead of `old` at each of `places` in `plain`. The rest stays as it is.

        `old` and `new` have LF; the k-th line of `new` ends like the k-th of `old`.
        """
        returns = list(_crlf_offsets(self.text))
        text, end, pieces = self.text, 0, list[str]()
        for place in places:
            first = place + bisect_left(returns, place)
            after = place + len(old)
            last = after + bisect_left(returns, after)
            pieces += (text[end:first], self._with_ends_like(text[first:last], new))
            end = last
        return "".join((*pieces, text[end:]))

    def _with_ends_like(self, before: str, new: str) -> str:
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


def decode_text(content: bytes) -> EditableText | None:
    """The text of `content`; None if it is not text."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _decode_exactly(content, encoding, mark)
    if b"\0" in content[:_MAX_HEAD_BYTES]:
        return None
    try:
        return EditableText(content.decode())
    except UnicodeDecodeError:
        text = content.decode(errors="surrogateescape")
        # More valid UTF-8 than bad bytes: a damaged UTF-8 file. Otherwise an older encoding.
        good = text.encode(errors="ignore")
        if len(good.translate(None, _ASCII_BYTES)) > len(content) - len(good):
            return EditableText(text)
        from refold.tools.legacy_encodings import legacy_encoding

        encoding = legacy_encoding(content)
        return EditableText(content.decode(encoding), encoding)


def check_sendable(text: str, name: str) -> None:
    """Raise if a model wrote a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ToolFailed(f"{name} holds half a character (\\u{ord(half):04x}).") from error


def _decode_exactly(content: bytes, encoding: str, mark: bytes) -> EditableText | None:
    try:
        text = content[len(mark) :].decode(encoding, _errors(encoding))
    except UnicodeDecodeError:
        return None
    decoded = EditableText(text, encoding, mark)
    return decoded if decoded.encode(text) == content else None


def _errors(encoding: str) -> str:
    return "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape"


def _crlf_offsets(text: str) -> Iterator[int]:
    """The offsets, in the text with LF alone, of line ends that are CRLF."""
    offset, before = text.find("\r\n"), 0
    while offset >= 0:
        yield offset - before
        before += 1
        offset = text.find("\r\n", offset + 2)


MAX_LINE_CHARS = 2000
MAX_PIECE_CHARS = 28_000  # below the length at which the seam cuts


class Piece(Struct, frozen=True):
    text: str
    first: int
    last: int
    total: int

    @property
    def where(self) -> str:
        """The numbers of these lines, for the user."""
        if self.last < self.first:
            return f"there are only {self.total:,} lines"
        if self.first == 1 and self.last == self.total:
            return f"{self.total:,} line{'' if self.total == 1 else 's'}"
        return f"lines {self.first}-{self.last} of {self.total:,}"

    @property
    def extent(self) -> str:
        """The line numbers with a hint on how to read more, for a model."""
        if self.last < self.first or self.last == self.total:
            return self.where
        return f"{self.where}; continue with first={self.last + 1}"


def piece(text: str, first: int, count: int) -> Piece:
    """Lines of `text` (LF alone) from `first`, at most `count`, cut where too long."""
    total = text.count("\n") + (not text.endswith("\n") and bool(text))
    shown, length, last = list[str](), 0, first - 1
    for number, line in enumerate(_lines_from(text, first), first):
        row = f"{number}\t{shorten_line(line)}"
        length += len(row) + 1
        if number >= first + count or (length > MAX_PIECE_CHARS and shown):
            break
        shown.append(row)
        last = number
    return Piece("\n".join(shown), first, last, total)


def fold_lines(text: str, width: int = MAX_LINE_CHARS) -> str:
    """`text` with long lines broken, so that each part can be read by its line number."""
    if all(len(line) <= width for line in text.split("\n")):
        return text
    return "\n".join(
        line[index : index + width]
        for line in text.split("\n")
        for index in range(0, max(len(line), 1), width)
    )


def _lines_from(text: str, first: int) -> Iterator[str]:
    # Without `split`: a big file must not become a million strings.
    offset = 0
    for _ in range(first - 1):
        offset = text.find("\n", offset) + 1
        if offset == 0:
            return
    while offset < len(text):
        end = text.find("\n", offset)
        yield text[offset : end if end >= 0 else len(text)]
        if end < 0:
            return
        offset = end + 1


def shorten_line(line: str, chars: int = MAX_LINE_CHARS) -> str:
    """At most `chars` characters of a line, and the number that is left out."""
    line = clean(line)
    left = len(line) - chars
    return line if left <= 0 else f"{line[:chars]} [{left:,} more characters]"
