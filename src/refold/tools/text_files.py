"""Converts between the text of a file and the text that a model reads and writes.

A model writes LF and no byte order mark. A file may have CRLF, a mark, UTF-16, or bytes that
are not UTF-8. Unchanged parts keep their bytes. A model reads lines with their numbers.
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
_MAX_HEAD_BYTES = 8192  # a NUL within these means binary data


class EditableText(Struct, frozen=True):
    """The text of a file with its original line ends, and the encoding of the file."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def plain(self) -> str:
        """The text with LF as line end, as a model sees it."""
        return self.text.replace("\r\n", "\n")

    @property
    def crlf(self) -> bool:
        """Whether most lines of the file end in CRLF."""
        return self.text.count("\r\n") * 2 > self.text.count("\n")

    @property
    def oddity(self) -> str:
        """A note for the model if the file is not plain UTF-8, otherwise ""."""
        is_clean = clean(self.text) is self.text  # the same object, if nothing is replaced
        if not is_clean:
            return "some bytes are not UTF-8 and are shown as \ufffd"
        if self.encoding != "utf-8":
            return f"the file is {self.encoding_name}"
        return ""

    @property
    def encoding_name(self) -> str:
        from refold.tools.legacy_encodings import DISPLAY_NAMES

        return DISPLAY_NAMES[self.encoding]

    def encode(self, text: str) -> bytes:
        """Return `text`, which has the line ends of this file, in the encoding of this file."""
        return self.mark + text.encode(self.encoding, _errors(self.encoding))

    def with_ends(self, text: str) -> str:
        """Return `text`, which has LF, with the line ends of this file."""
        text = text.replace("\r\n", "\n")
        return text.replace("\n", "\r\n") if self.crlf else text

    def replace_at(self, places: list[int], old: str, new: str) -> str:
        """Return the text of the file with `old` replaced by `new` at each of `places`.

        `places` are offsets in `plain`. `old` and `new` have LF; the k-th line of `new` gets
        the line end of the k-th line of `old`.
        """
        crlf_offsets = list(_crlf_offsets(self.text))
        pieces = list[str]()
        last_end = 0  # of the text that was replaced last
        for place in places:
            # In `text`, each CRLF before an offset moves it by one character.
            start = place + bisect_left(crlf_offsets, place)
            plain_end = place + len(old)
            end = plain_end + bisect_left(crlf_offsets, plain_end)
            unchanged, replaced = self.text[last_end:start], self.text[start:end]
            pieces += (unchanged, self._with_ends_like(replaced, new))
            last_end = end
        return "".join((*pieces, self.text[last_end:]))

    def _with_ends_like(self, before: str, new: str) -> str:
        """Return `new` with the line ends that the lines of `before` have.

        Further lines get the line end of the file.
        """
        is_crlf = [line.endswith("\r") for line in before.split("\n")[:-1]]
        # `before` can also be a part of one line, without an end.
        if all(crlf == self.crlf for crlf in is_crlf):
            return self.with_ends(new)
        *lines, last_line = new.split("\n")
        is_crlf += [self.crlf] * len(lines)
        with_ends = (
            line + ("\r\n" if crlf else "\n")
            for line, crlf in zip(lines, is_crlf, strict=False)
        )
        return "".join((*with_ends, last_line))


def decode_text(content: bytes) -> EditableText | None:
    """Return the text of `content`; None if it is not text.

    Bytes that are not valid in a damaged UTF-8 file become surrogates.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _decode_exactly(content, encoding, mark)
    if b"\0" in content[:_MAX_HEAD_BYTES]:
        return None
    try:
        return EditableText(content.decode())
    except UnicodeDecodeError:
        pass
    text = content.decode(errors="surrogateescape")
    # With more valid UTF-8 than bad bytes, it is a damaged UTF-8 file; otherwise it has an older
    # encoding.
    valid = text.encode(errors="ignore")
    valid_beyond_ascii = valid.translate(None, _ASCII_BYTES)
    bad_byte_count = len(content) - len(valid)
    if len(valid_beyond_ascii) > bad_byte_count:
        return EditableText(text)
    from refold.tools.legacy_encodings import legacy_encoding

    encoding = legacy_encoding(content)
    return EditableText(content.decode(encoding), encoding)


def check_sendable(text: str, name: str) -> None:
    """Raise `ToolFailed` if the text has a lone surrogate, which cannot be encoded.

    `name` is the name of the text for the message.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ToolFailed(f"{name} holds half a character (\\u{ord(half):04x}).") from error


def _decode_exactly(content: bytes, encoding: str, mark: bytes) -> EditableText | None:
    """Return the text; None unless it is encoded to exactly the same bytes again.

    `mark` is the byte order mark at the beginning.
    """
    try:
        text = content[len(mark) :].decode(encoding, _errors(encoding))
    except UnicodeDecodeError:
        return None
    decoded = EditableText(text, encoding, mark)
    return decoded if decoded.encode(text) == content else None


def _errors(encoding: str) -> str:
    return "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape"


def _crlf_offsets(text: str) -> Iterator[int]:
    """Yield the offset that each CRLF would have if every line end were LF."""
    offset = text.find("\r\n")
    count_before = 0
    while offset >= 0:
        yield offset - count_before
        count_before += 1
        offset = text.find("\r\n", offset + len("\r\n"))


MAX_LINE_CHARS = 2000
MAX_PIECE_CHARS = 28_000  # shorter than the length at which the seam cuts


class Piece(Struct, frozen=True):
    """Lines `first` to `last` of a text of `total` lines, with their numbers."""

    text: str
    first: int
    last: int
    total: int

    @property
    def where(self) -> str:
        """The numbers of these lines, as a text for the user."""
        if self.last < self.first:
            return f"there are only {self.total:,} lines"
        if self.first == 1 and self.last == self.total:
            return f"{self.total:,} line{'' if self.total == 1 else 's'}"
        return f"lines {self.first}-{self.last} of {self.total:,}"

    @property
    def extent(self) -> str:
        """The numbers of these lines, as a text for a model, with how to read on."""
        if self.last < self.first or self.last == self.total:
            return self.where
        return f"{self.where}; continue with first={self.last + 1}"


def piece(text: str, first: int, count: int) -> Piece:
    """Return at most `count` lines of `text`, with their numbers, from line `first` on.

    Return fewer lines if they would be too long together. The line ends of `text` are LF.
    """
    total = count_lines(text)
    rows = list[str]()
    length, last = 0, first - 1
    for number, line in enumerate(_lines_from(text, first), first):
        row = f"{number}\t{shorten_line(line)}"
        length += len(row) + 1
        is_full = length > MAX_PIECE_CHARS and rows  # the first row always fits
        if number >= first + count or is_full:
            break
        rows.append(row)
        last = number
    return Piece("\n".join(rows), first, last, total)


def count_lines(text: str) -> int:
    has_open_end = bool(text) and not text.endswith("\n")
    return text.count("\n") + has_open_end


def fold_lines(text: str, width: int = MAX_LINE_CHARS) -> str:
    """Return `text` with long lines divided into lines of at most `width` characters.

    So `read_file` can read every part by its line number.
    """
    if all(len(line) <= width for line in text.split("\n")):
        return text
    return "\n".join(
        line[start : start + width]
        for line in text.split("\n")
        for start in range(0, max(len(line), 1), width)  # an empty line stays one line
    )


def _lines_from(text: str, first: int) -> Iterator[str]:
    """Yield the lines of a text from the line `first` on, which counts from 1."""
    # No `split`, because a big file must not become a million strings.
    offset = 0
    for _ in range(first - 1):
        end = text.find("\n", offset)
        if end < 0:
            return
        offset = end + 1
    while offset < len(text):
        end = text.find("\n", offset)
        yield text[offset : end if end >= 0 else len(text)]
        if end < 0:
            return
        offset = end + 1


def shorten_line(line: str, chars: int = MAX_LINE_CHARS) -> str:
    """Return the first `chars` characters of a line, and how many characters are omitted."""
    line = clean(line)
    left = len(line) - chars
    return line if left <= 0 else f"{line[:chars]} [{left:,} more characters]"
