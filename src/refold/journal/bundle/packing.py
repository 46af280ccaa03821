"""A session as one document, in pieces: its journal, its blobs, and all below it.

Reads only, and holds no more than one line or one piece of a blob at a time; so it works
while the session runs, and for one of any length. What is damaged is left out and told.
Checkpoints are not in it: they are copies of files, and stay with those.
"""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from refold import __version__
from refold.errors import BadInput
from refold.journal import blobs, lines
from refold.journal.blobs import is_name
from refold.journal.bundle.form import (
    BLOB_END,
    EVENTS_END,
    FORMAT,
    OPEN,
    PIECE,
    SESSION_END,
    VERSION,
    Counts,
    Header,
)
from refold.journal.bundle.survey import Survey, good_lines, lies_in, survey
from refold.journal.home import CHILDREN


class Part(Struct, frozen=True):
    """One journal. `name` is that below the first: "child-1/child-2"."""

    name: str
    path: Path
    seen: Survey
    blobs: tuple[str, ...]  # those that are there and good
    size: int  # bytes of those


class Packing:
    """Looks at all there is; then `pieces` gives the document. `damages`: what is not in it.

    Raises `BadInput` where nothing stands in the session. A child goes as any other: what
    it had of its parent is history once it is imported.
    """

    def __init__(self, path: Path, session: str, *, children: bool = True) -> None:
        self.damages = list[str]()
        self._children = children
        self._parts = list(self._survey("", path))
        first = self._parts[0].seen
        if not first.events:
            why = f": {first.damage}" if first.damage else ""
            raise BadInput(f"there is nothing good to export in {session}{why}")
        self.id = first.source or session

    @property
    def size(self) -> int:
        """About how many bytes the document has."""
        return sum(part.seen.size + part.size * 4 // 3 for part in self._parts)

    @property
    def events(self) -> int:
        return sum(part.seen.events for part in self._parts)

    @property
    def sessions(self) -> int:
        return len(self._parts)

    def pieces(self) -> Iterator[bytes]:
        header = msgspec.json.encode(Header(FORMAT, VERSION, __version__, self.id))
        yield header.removesuffix(b"]}") + b"\n"
        for number, part in enumerate(self._parts, start=1):
            last = number == len(self._parts)
            yield (
                b'{"name":' + msgspec.json.encode(part.name) + b',"events":' + OPEN + b"\n"
            )
            yield from _separated(_whole_lines(part))
            yield EVENTS_END + b"\n"
            for at, name in enumerate(part.blobs, start=1):
                yield f'"{name}":['.encode() + b"\n"
                yield from _separated(_encoded(part.path / blobs.NAME / name))
                yield BLOB_END + (b"\n" if at == len(part.blobs) else b",\n")
            yield SESSION_END + (b"\n" if last else b",\n")
        found = sum(len(part.blobs) for part in self._parts)
        counts = msgspec.json.encode(Counts(len(self._parts), self.events, found))
        yield b"]," + counts.removeprefix(b"{") + b"\n"

    def _survey(self, name: str, path: Path) -> Iterator[Part]:
        seen = survey(path)
        if seen.damage:
            self.damages.append(seen.damage)
        sizes = {each: self._blob(path / blobs.NAME, each) for each in seen.blobs}
        good = {each: size for each, size in sizes.items() if size is not None}
        yield Part(name, path, seen, tuple(good), sum(good.values()))
        for child in seen.children if self._children else ():
            below = path / CHILDREN / child
            if lies_in(below):  # those of the session that this one is a fork of are there
                yield from self._survey(f"{name}/{child}".lstrip("/"), below)

    def _blob(self, directory: Path, name: str) -> int | None:
        """Its size; None: it is not as it was, or not there."""
        found = sha256()
        if not is_name(name):
            self.damages.append(f"the journal names a blob {name!r}: there is none")
            return None
        path = directory / name
        try:
            size = path.stat().st_size
            for piece in _in_pieces(path):
                found.update(piece)
        except FileNotFoundError:
            self.damages.append(f"the blob {path} is missing")
            return None
        except OSError as error:
            self.damages.append(f"the blob {path} cannot be read: {error.strerror}")
            return None
        if found.hexdigest() == name:
            return size
        self.damages.append(f"the blob {path} was changed after it was written")
        return None


def _whole_lines(part: Part) -> Iterator[bytes]:
    for line in good_lines(part.path / lines.NAME, part.seen.size):
        yield line[:-1]


def _encoded(path: Path) -> Iterator[bytes]:
    for piece in _in_pieces(path):
        yield b'"' + b64encode(piece) + b'"'


def _in_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _separated(found: Iterator[bytes]) -> Iterator[bytes]:
    """Each on a line of its own, with a comma where another comes after it."""
    before = next(found, None)
    for each in found:
        assert before is not None  # there is one before this
        yield before + b",\n"
        before = each
    if before is not None:
        yield before + b"\n"
