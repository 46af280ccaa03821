"""The format of an exported session: a tar of plain files, written and read in order.

    session.json            the version of refold that wrote it, and the id of the session
    events.jsonl            the journal of the session, byte for byte
    blobs/<sha256>          the blobs that its events name, byte for byte
    child-1/events.jsonl    each subagent, after the session that started it
    child-1/blobs/<sha256>

The headers are ustar, 512 bytes each, without extensions, and no member is a link or a
folder. Names in the file are never used as paths, and content is read in pieces. `unpack`
interprets the content and decides where it is stored.
"""

from collections.abc import Callable, Iterable, Iterator
from tarfile import REGTYPE, USTAR_FORMAT, HeaderError, TarInfo
from typing import BinaryIO, cast

import msgspec
from msgspec import Struct

from refold._version import __version__
from refold.errors import BadInput, Corrupt
from refold.journal.events import codec
from refold.journal.events.codec import Head, Line

BUNDLE_FORMAT = "refold session"
BUNDLE_VERSION = 2  # version 1 was one JSON document

PIECE_BYTES = 1 << 20  # of content, read at once
_HEADER_NAME = "session.json"
_MAX_HEADER_BYTES = 64_000
_BLOCK_BYTES = 512
_END_BLOCKS = bytes(2 * _BLOCK_BYTES)
_MODIFICATION_TIME = 315_532_800  # always 1980, so that equal sessions give equal bytes
_JSON_FORMAT_START = b'{"format":"refold session"'


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the tar's first member. `id` is the id of the exported session."""

    format: str
    version: int
    refold: str
    id: str


def header_member(id_: str) -> Iterator[bytes]:
    """Yield the bytes of the first member, which identifies the format and the session."""
    header = (
        msgspec.json.encode(Header(BUNDLE_FORMAT, BUNDLE_VERSION, __version__, id_)) + b"\n"
    )
    return member(_HEADER_NAME, len(header), [header])


def member(name: str, size: int, content: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of one member of the tar.

    Raises `OSError` if `content` does not have `size` bytes, and `BadInput` for a bad size.
    """
    info = TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o600, _MODIFICATION_TIME
    try:
        yield info.tobuf(USTAR_FORMAT)
    except ValueError as error:
        raise BadInput(f"{name} cannot be exported, {size:,} bytes: {error}") from error
    bytes_left = size
    for piece in content:
        bytes_left -= len(piece)
        yield piece
    if bytes_left:
        raise OSError(f"{name} was changed meanwhile")
    yield bytes(-size % _BLOCK_BYTES)  # zeros up to a whole block


def end_of_archive() -> bytes:
    """Return the end of the tar. A truncated file lacks it."""
    return _END_BLOCKS


class ArchiveReader:
    """Reads from the start of `file` to its end, one member after the other."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self._member, self._bytes_left = "", 0
        self._members = self._read_members()

    def header(self) -> Header:
        """Read the header, and return it. Raises `BadInput` for another format or version."""
        if next(self._members, "") != _HEADER_NAME or self._bytes_left > _MAX_HEADER_BYTES:
            raise self._wrong_file_error()
        text = b"".join(self.pieces())
        try:
            fields = msgspec.json.decode(text, type=dict[str, object])
            if fields.get("format") != BUNDLE_FORMAT:
                raise self._wrong_file_error()
            if fields.get("version") != BUNDLE_VERSION:
                raise BadInput(
                    f"{self._name} has version {fields.get('version')!r} of the format, and "
                    f"this refold reads version {BUNDLE_VERSION}: read it with the refold that wrote it, "
                    f"{fields.get('refold')!r}"
                )
            return msgspec.json.decode(text, type=Header)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self.format_error(f"this is not as refold writes it ({error})") from error

    def members(self) -> Iterator[str]:
        """Yield the names of the members after the header."""
        return self._members

    def lines(self, longest: int) -> Iterator[bytes]:
        """Yield the lines of this member, without line ends.

        Raises `BadInput` for a line of more than `longest` bytes.
        """
        while self._bytes_left:
            line = self._read_content(
                self._file.readline, min(self._bytes_left, longest + 1)
            )
            if not line.endswith(b"\n"):
                if len(line) > longest:
                    raise self.format_error(f"a line is longer than {longest:,} bytes")
                raise self.format_error("a line has no end")
            yield line[:-1]

    def pieces(self) -> Iterator[bytes]:
        """Yield the content of this member."""
        while self._bytes_left:
            yield self._read_content(self._file.read, min(self._bytes_left, PIECE_BYTES))

    def format_error(self, problem: str) -> BadInput:
        """Return the error for a problem in the current member."""
        place = f", {self._member[:100]!r}" if self._member else ""
        return BadInput(f"{self._name}{place}: {problem}; nothing was imported")

    def _read_members(self) -> Iterator[str]:
        """Yield the name of each member. Its content must be read before the next name."""
        while True:
            block = self._read_block(_BLOCK_BYTES)
            if not any(block):  # two blocks of zeros end a tar
                break
            info = self._parse_header(block)
            self._member, self._bytes_left = info.name, info.size
            yield info.name
            padding_bytes = -info.size % _BLOCK_BYTES
            if self._bytes_left or any(self._read_block(padding_bytes)):
                # The content was not read to its end, or is not padded with zeros.
                raise self.format_error("this is not a part of an exported session")
        if not self._member:
            raise self._wrong_file_error()
        second_block = self._read_block(_BLOCK_BYTES)
        if any(second_block) or self._read(self._file.read, 1):
            raise self.format_error("there is something after the end")

    def _parse_header(self, block: bytes) -> TarInfo:
        """Return the header in this block. Raises `BadInput` unless it is of a plain file."""
        try:
            info = TarInfo.frombuf(block, "utf-8", "strict")
        except (HeaderError, ValueError) as error:
            if not self._member:
                raise self._wrong_file_error() from error
            raise self.format_error(
                f"what comes after it is not a tar header ({error})"
            ) from error
        if info.type != REGTYPE or info.size < 0:
            raise self.format_error(
                f"what comes after it, {info.name[:100]!r}, is not a plain file"
            )
        return info

    def _read_block(self, size: int) -> bytes:
        """Return the next `size` bytes of the file. Raises `BadInput` if there are fewer."""
        block = self._read(self._file.read, size)
        if block.startswith(_JSON_FORMAT_START) and not self._member:
            raise BadInput(
                f"{self._name} was exported as JSON, by an earlier refold, and this one "
                "reads tars: export it again, with --format tar"
            )
        if len(block) < size:
            raise self._truncation_error() if self._member else self._wrong_file_error()
        return block

    def _read_content(self, read_bytes: Callable[[int], bytes], size: int) -> bytes:
        """Read 1 to `size` bytes of this member with `read_bytes`, and return them."""
        piece = self._read(read_bytes, size)
        if not piece:
            raise self._truncation_error()
        self._bytes_left -= len(piece)
        return piece

    def _read(self, read_bytes: Callable[[int], bytes], size: int) -> bytes:
        """Return `read_bytes(size)`. Raises an `OSError` of `read_bytes` as `BadInput`."""
        try:
            return read_bytes(size)
        except OSError as error:
            raise BadInput(f"{self._name} cannot be read: {error.strerror}") from error

    def _truncation_error(self) -> BadInput:
        return self.format_error("the file is cut off here")

    def _wrong_file_error(self) -> BadInput:
        return BadInput(
            f"{self._name} is not an exported session as `refold sessions export --format tar` "
            f"writes it: it does not begin with {_HEADER_NAME}"
        )


MAX_LINE_BYTES = 64_000_000  # longer than any line of a session, and fits in memory
_MAX_TIME_SECONDS = 253_402_300_800.0  # the year 10,000, which `datetime` cannot represent
_MAX_NUMBER = 2**53  # other JSON readers lose precision in larger numbers


class ValidLine(Struct, frozen=True):
    """A line, its decoded envelope, and the head of the chain after it."""

    line: bytes
    envelope: Line
    head: Head


def valid_lines(lines: Iterable[bytes], head: Head = Head()) -> Iterator[ValidLine]:  # noqa: B008 - frozen
    """Yield the decoded lines after `head`. Raises `Corrupt` at the first invalid line.

    An export stops before an invalid line, and an import refuses it. A line with a huge number
    is invalid, too: code that adds up tokens or draws a bar would fail with it later.
    """
    for line in lines:
        good = _check_line(line, head)
        head = good.head
        yield good


def numbers_in_range(value: object) -> bool:
    """Whether all numbers in a value, however deep, are in the range that a line may have."""
    match value:
        case int() | float():
            return abs(value) < _MAX_NUMBER  # also False for NaN
        case tuple():
            return all(map(numbers_in_range, cast("tuple[object, ...]", value)))
        case Struct():
            return all(numbers_in_range(getattr(value, f)) for f in value.__struct_fields__)
        case _:
            return True


def _check_line(line: bytes, head: Head) -> ValidLine:
    """Return a line whose encoding, length, numbers and time are valid. Raises `Corrupt`.

    The check is stricter than that of `codec`.
    """
    number = head.seq + 1
    if len(line) > MAX_LINE_BYTES:
        raise Corrupt(number, f"it is longer than {MAX_LINE_BYTES:,} bytes")
    try:
        [(envelope, after)] = codec.follow([line], head)
        line.decode()  # the whole line, because `follow` decodes only the envelope
    except UnicodeDecodeError as error:
        raise Corrupt(number, "it is not UTF-8 text") from error
    except RecursionError as error:
        raise Corrupt(number, "what is in it is nested too deep") from error
    counters = (envelope.epoch, envelope.turn, envelope.cause)
    has_valid_counters = all(0 <= value < _MAX_NUMBER for value in counters)
    if envelope.seq != number or not has_valid_counters:
        raise Corrupt(number, f"it says that it is event {envelope.seq}")
    if not 0 <= envelope.at < _MAX_TIME_SECONDS:
        raise Corrupt(number, f"its time, {envelope.at}, is not a valid date")
    return ValidLine(line, envelope, after)
