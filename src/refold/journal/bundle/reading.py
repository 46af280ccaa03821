"""The lines of an exported session, one by one, each no longer than a memory can hold.

Knows where what stands in the form and what each line may look like; what the content
means, and where it goes, is the business of `unpacking`.
"""

from binascii import Error, a2b_base64
from collections.abc import Iterator
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.journal.bundle.form import (
    BLOB_END,
    EVENTS_END,
    FORMAT,
    LONGEST_LINE,
    LONGEST_START,
    OPEN,
    PIECE,
    SESSION_END,
    VERSION,
    Counts,
    Header,
)

T = TypeVar("T")
_PIECE_LINE = PIECE * 4 // 3 + 8


class _Opening(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    events: list[int]


class Reading:
    """From the start of `file` to its end, in the order of its lines."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name, self.line = file, name, 0
        self._held: bytes | None = None  # a line that was looked at and not taken
        self._ended_by_comma = False  # does another come after what was read last?

    def header(self) -> Header:
        """Raises `BadInput` for what was not written by refold, or by a newer one."""
        line = self._next(LONGEST_START)
        whole = line + b"]}" if line.endswith(OPEN) else line
        try:
            found = msgspec.json.decode(whole, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            found = {}
        if found.get("format") != FORMAT:
            raise BadInput(
                f"{self._name} is no exported session as `refold sessions export --format "
                f"json` writes it: its first line does not say "
                f'"format":"{FORMAT}" (was it formatted anew?)'
            )
        if found.get("version") != VERSION:
            raise BadInput(
                f"{self._name} is of version {found.get('version')!r} of the form, and this "
                f"refold knows {VERSION}: read it with the refold that wrote it, "
                f"{found.get('refold')!r}"
            )
        return self._decoded(whole, Header)

    def sessions(self) -> Iterator[str]:
        """The name of each. Read its `events` and its `blobs` before the next."""
        more = True
        while more:
            opening = self._next(LONGEST_START)
            if not opening.endswith(OPEN):
                raise self.wrong("a session should begin here")
            yield self._decoded(opening + b"]}", _Opening).name
            line = self._next(LONGEST_START)
            more = line == SESSION_END + b","
            if not more and line != SESSION_END:
                raise self.wrong("a session should end here")

    def events(self) -> Iterator[bytes]:
        yield from self._separated(LONGEST_LINE, EVENTS_END)

    def blobs(self) -> Iterator[str]:
        """The name of each. Read its `pieces` before the next."""
        more, first = True, True
        while more:
            line = self._peeked(SESSION_END) if first else self._next(LONGEST_START)
            if line is None:
                return
            first = False
            if not (line.startswith(b'"') and line.endswith(b'":[')):
                raise self.wrong("a blob should begin here")
            yield line[1:-3].decode(errors="replace")
            more = self._ended_by_comma

    def pieces(self) -> Iterator[bytes]:
        short = False
        for line in self._separated(_PIECE_LINE, BLOB_END):
            if short or len(line) < 2 or line[:1] + line[-1:] != b'""':
                raise self.wrong("a piece of a blob should stand here")
            try:
                piece = a2b_base64(line[1:-1], strict_mode=True)
            except Error as error:
                raise self.wrong(f"this is no base64: {error}") from error
            short = len(piece) < PIECE
            yield piece

    def end(self) -> Counts:
        line = self._next(LONGEST_START)
        if not line.startswith(b"],"):
            raise self.wrong("the document should end here")
        counts = self._decoded(b"{" + line[2:], Counts)
        if self._file.read(1):
            raise self.wrong("something stands after the end")
        return counts

    def wrong(self, what: str) -> BadInput:
        return BadInput(f"{self._name}, line {self.line}: {what}; nothing was imported")

    def _separated(self, longest: int, end: bytes) -> Iterator[bytes]:
        """Lines with a comma after each but the last, and then the line `end`."""
        more, first = True, True
        while (line := self._next(longest, comma=1)) != end and line != end + b",":
            if not more:
                raise self.wrong("a comma is missing before this")
            more = line.endswith(b",")
            yield line.removesuffix(b",")
            first = False
        if more and not first:
            raise self.wrong("something is missing before this")
        self._ended_by_comma = line != end
        if self._ended_by_comma and end != BLOB_END:
            raise self.wrong("there is a comma too many here")

    def _peeked(self, end: bytes) -> bytes | None:
        """The next line; None where it is the end, which is then still to be read."""
        line = self._next(LONGEST_START)
        if line in (end, end + b","):
            self._held = line
            return None
        return line

    def _next(self, longest: int, comma: int = 0) -> bytes:
        if self._held is not None:
            line, self._held = self._held, None
            return line
        self.line += 1
        try:
            line = self._file.readline(longest + comma + 1)
        except OSError as error:
            raise BadInput(f"{self._name} cannot be read: {error.strerror}") from error
        if line.endswith(b"\n"):
            return line[:-1]
        if len(line) > longest + comma:
            raise self.wrong(f"the line is longer than {longest:,} bytes")
        raise self.wrong("the file is cut off here")

    def _decoded(self, line: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self.wrong(f"this is not as refold writes it ({error})") from error
