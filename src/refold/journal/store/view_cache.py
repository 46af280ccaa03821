"""The folded views of a session, beside its journal: a cache, so that opening a long one is
fast.

    views   pieces of `state.view_codec`, each for about a thousand events more

A piece is used only if this installation made it with this source code (`_key_of`), if no
earlier piece was changed, and if the lines that it covers are, byte for byte, those whose
chain was checked when the piece was made. Otherwise its events are folded again. So the
file can be deleted, cut or overwritten at any time. Two processes that write it at once
make it useless, but never cause a wrong result. The holder of the writer lock writes it, in
the threads of `writer_threads`.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold._version import __version__
from refold.errors import Corrupt
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.state.fold import View
from refold.journal.state.view_codec import EncodedView, ListTable, decode_view
from refold.journal.store import log_file
from refold.journal.store.disk import Disk
from refold.journal.store.port import FoldedView
from refold.safe_open import create_complete_file, open_checked, read_regular

_KEY_BYTES = 32
_MAX_BYTES = 1_000_000_000
_SOURCE_FOLDERS = ("journal/events", "journal/state", "values")


class _PieceHeader(Struct, frozen=True):
    """The header of a piece. `mac` authenticates this piece and all earlier ones.

    `seq` and `h` are the head of the journal, and `end` is where its lines end. `digest` is
    the sha256 of the lines that this piece covers and earlier pieces do not.
    """

    mac: str
    bytes: int
    seq: int
    h: str
    end: int
    digest: str


class _Piece(Struct, frozen=True):
    header: _PieceHeader
    content: bytes
    file_end: int  # where it ends in the file of views


class ViewCache:
    """The cache of one session. Only one thread may use it at a time."""

    def __init__(self, directory: Path, key_file: Path, disk: Disk) -> None:
        self._path = directory / log_file.VIEWS_FILE_NAME
        self._lines_path = directory / log_file.FILE_NAME
        self._key_file, self._disk = key_file, disk
        self._table, self._last = ListTable(), _NO_PIECE

    def load(self, up_to: int | None = None) -> FoldedView | None:
        """Return the newest view that may be used, or the newest one up to the event
        `up_to`.
        """
        try:
            key = _key_of(self._key_file)
            data, _ = read_regular(self._path, _MAX_BYTES, follow=False)
            with self._lines_path.open("rb") as lines:
                valid_pieces = list(_valid_pieces(data, lines, key))
            pieces = [p for p in valid_pieces if up_to is None or p.header.seq <= up_to]
            if not pieces:
                return None
            decoded = decode_view([piece.content for piece in pieces])
        except (OSError, ValueError, LookupError, msgspec.MsgspecError):
            return None
        if up_to is None:  # a later `save` continues after the newest piece
            self._table, self._last = decoded.table, pieces[-1]
        header = pieces[-1].header
        head = (header.seq, header.h)
        return FoldedView(decoded.view, head, header.end, decoded.earlier)

    def save(self, view: View, head: Head) -> None:
        """Add a piece for this view, whose journal ends at `head`. An error has no effect.

        A piece that would be larger than the lines that it covers is not added.
        """
        with suppress(OSError, Corrupt):
            file = self._open()
            try:
                self._add_piece(file, view, head)
            finally:
                self._disk.close(file)

    def _open(self) -> int:
        """Open the file of views.

        If the file is shorter than this cache left it, forget what was in the file.
        """
        file = open_checked(self._path, os.O_RDWR | os.O_CREAT)
        try:
            # If the file was deleted meanwhile, begin a new one.
            if os.fstat(file).st_size < self._last.file_end:
                self._table, self._last = ListTable(), _NO_PIECE
        except BaseException:
            self._disk.close(file)
            raise
        return file

    def _add_piece(self, file: int, view: View, head: Head) -> None:
        """Write a piece for the view, unless it is larger than the lines that it covers."""
        before = self._last.header
        lines = _lines_between(self._lines_path, before, head)
        encoded = EncodedView(view, self._table)
        if not lines or len(encoded.piece) > len(lines):
            return
        unsigned_header = _PieceHeader(
            mac="",
            bytes=len(encoded.piece),
            seq=head.seq,
            h=head.h,
            end=before.end + len(lines),
            digest=sha256(lines).hexdigest(),
        )
        key = _key_of(self._key_file, create=True)
        mac = _mac(key, before.mac, unsigned_header, encoded.piece)
        header = replace(unsigned_header, mac=mac)
        data = msgspec.json.encode(header) + b"\n" + encoded.piece + b"\n"
        start = self._last.file_end
        self._disk.truncate(file, start)  # cuts off pieces that were not valid
        try:
            self._disk.write(file, data, start)
        except BaseException:
            self._disk.truncate(file, start)
            raise
        encoded.commit()
        # The next piece needs the header and the end of this one, but not its content.
        self._last = _Piece(header, content=b"", file_end=start + len(data))


_NO_HEADER = _PieceHeader(mac="", bytes=0, seq=0, h=Head().h, end=0, digest="")
_NO_PIECE = _Piece(_NO_HEADER, content=b"", file_end=0)


def _valid_pieces(data: bytes, lines: BinaryIO, key: bytes) -> Iterator[_Piece]:
    """Yield the pieces up to the first one that must not be used.

    `lines` is the journal, at its start. The journal is not mapped into memory, because an
    error of the disk would then end the process.
    """
    start = 0
    before = _NO_HEADER
    while (header_end := data.find(b"\n", start)) >= 0:
        try:
            header = msgspec.json.decode(data[start:header_end], type=_PieceHeader)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        content_start = header_end + 1
        content_end = content_start + header.bytes
        content = data[content_start:content_end]
        if not _is_authentic(header, content, before, key):
            return
        covered_lines = lines.read(header.end - before.end)
        if sha256(covered_lines).hexdigest() != header.digest:
            return
        before = header
        start = content_end + 1  # after the line end of the content
        yield _Piece(header, content, file_end=start)


def _is_authentic(
    header: _PieceHeader, content: bytes, before: _PieceHeader, key: bytes
) -> bool:
    """Whether a holder of `key` wrote this piece, as the next one after `before`."""
    import hmac

    expected = _mac(key, before.mac, header, content)
    return hmac.compare_digest(header.mac.encode(), expected.encode())


def _mac(key: bytes, before: str, header: _PieceHeader, content: bytes) -> str:
    """Return the MAC of a piece: over its header, with the MAC of the piece before, and its
    content.
    """
    import hmac  # imported late: few sessions are that long

    about = msgspec.json.encode(replace(header, mac=before))
    return hmac.digest(key, about + b"\n" + content, "sha256").hex()


def _lines_between(path: Path, before: _PieceHeader, head: Head) -> bytes:
    """Return the lines from `before` up to `head`; b"" if the journal lacks `head`.

    Raises `Corrupt` if the lines do not form a chain.
    """
    with path.open("rb") as file:
        file.seek(before.end)
        data = file.read()
    *lines, _ = data.split(b"\n")  # without an incomplete line at the end
    start = Head(before.seq, before.h)
    size = 0
    for line, (_, head_after) in zip(lines, codec.follow(lines, start), strict=True):
        size += len(line) + 1
        if head_after.seq == head.seq:
            return data[:size] if head_after == head else b""
    return b""


@cache
def _source_fingerprint() -> bytes:
    """Return a hash of the source code of events and fold: a change in it may change a
    view.
    """
    package, digest = Path(__file__).parents[2], sha256(__version__.encode())
    for folder in _SOURCE_FOLDERS:
        for file in sorted((package / folder).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.digest()


def _key_of(file: Path, *, create: bool = False) -> bytes:
    """Return the key of this installation for this source code. Raises `OSError`."""
    if create:
        with suppress(OSError):
            # Another size means that the disk was full, or that the power failed.
            if os.lstat(file).st_size != _KEY_BYTES:
                file.unlink()
        with suppress(FileExistsError):
            create_complete_file(file, os.urandom(_KEY_BYTES))
    key, size = read_regular(file, _KEY_BYTES, follow=False)
    if size != _KEY_BYTES:
        raise OSError(f"{file} is not a key of {_KEY_BYTES} bytes")
    return sha256(key + _source_fingerprint()).digest()
