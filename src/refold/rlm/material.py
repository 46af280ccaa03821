"""Read the files and folders that a question is about, as a value that code can have.

One text is a string; several are a dictionary from path to text; what is too large for
that is a list of paths. What is no text, what git ignores and what may hold secrets is
left out of folders, and that is said. How the value reaches the code is above.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.permissions.facts import Facts
from refold.permissions.protected import protected
from refold.place.files import DiskFiles
from refold.place.names import escaped
from refold.place.port import Real
from refold.place.walk import walk
from refold.rlm.below import Files
from refold.values.below import below, near
from refold.values.clean import clean

MOST = 200 * 1024 * 1024  # bytes that are held as a value
_PER_TOKEN = 4  # bytes
_NAMED = 5  # files that are left out, by name

Value = str | dict[str, str] | list[str]


class Material(Struct, frozen=True):
    """`value` is None where there is none. `left_out` are sentences for a person."""

    value: Value | None = None
    files: int = 0
    size: int = 0  # bytes
    left_out: tuple[str, ...] = ()
    read: Files = ()  # real paths, and the sha256 of each, in the order of the texts

    @property
    def tokens(self) -> int:
        """About so many; that of what was only listed, too."""
        return -(-self.size // _PER_TOKEN)

    @property
    def about(self) -> str:
        """What a model is told of it instead of the material itself."""
        match self.value:
            case None:
                return ""
            case str():
                return f"a text of {len(self.value):,} characters"
            case dict():
                much = sum(map(len, self.value.values()))
                return (
                    f"a dict from path to text, {self.files:,} files, {much:,} characters "
                    "in all"
                )
            case list():
                return (
                    f"a list of the paths of {self.files:,} files, {self.size:,} bytes in "
                    "all: open them as you need them"
                )


def material(
    named: Sequence[str],
    directory: str,
    unread: Callable[[str], str],
    most: int = MOST,
) -> Material:
    """What these files and folders hold. Raises `BadInput` for what cannot be read.

    `unread` says why the file of an absolute path may not be read, or "".
    """
    if not named:
        return Material()
    gathering = _Gathering(directory, unread)
    for name in named:
        gathering.take(name)
    return gathering.all_of_it(most)


class _Gathering:
    def __init__(self, directory: str, unread: Callable[[str], str]) -> None:
        self._directory, self._unread = directory, unread
        self._files = dict[str, int]()  # real path and size
        self._only = False  # was it one file that somebody named?
        self._read = list[tuple[str, str]]()
        self._odd, self._secret = list[str](), list[str]()

    def take(self, name: str) -> None:
        real = os.path.realpath(os.path.join(self._directory, os.path.expanduser(name)))
        if os.path.isdir(real):
            for path in sorted(walk(real, _on_we_go)):
                self._add(path)
            return
        if not os.path.lexists(real):
            raise BadInput(f"--context {name!r}: there is no such file or folder")
        if reason := self._unread(real):
            raise BadInput(f"--context {name!r} is not read: {reason}")
        self._only = not self._files
        self._files[real] = _size(real)

    def all_of_it(self, most: int) -> Material:
        size = sum(self._files.values())
        if size > most:
            paths = [self._key(path) for path in self._files]
            return Material(paths, len(paths), size, tuple(self._said()))
        texts = dict[str, str]()
        for path in self._files:
            if (text := self._text(path)) is not None:
                texts[self._key(path)] = text
        if not texts:
            raise BadInput("--context names nothing that can be read as text")
        size = sum(len(text.encode(errors="replace")) for text in texts.values())
        one = self._only and len(self._files) == 1
        value: Value = next(iter(texts.values())) if one else texts
        return Material(value, len(texts), size, tuple(self._said()), tuple(self._read))

    def _add(self, path: str) -> None:
        if path in self._files:
            return
        if protected(path, Facts(), writes=False) or self._unread(path):
            self._secret.append(path)
        else:
            self._files[path] = _size(path)
            self._only = False

    def _text(self, path: str) -> str | None:
        files = DiskFiles(os.path.dirname(path))
        try:
            content = files.read(Real(path), MOST)
        except ToolFailed as error:
            if self._only:
                raise BadInput(f"--context: {str(error).rstrip('.')}") from error
            self._odd.append(path)
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            if self._only:
                raise BadInput(f"--context {self._called(path)!r} is no text in UTF-8")
            self._odd.append(path)
            return None
        self._read.append((escaped(path), sha256(content).hexdigest()))
        return text

    def _key(self, path: str) -> str:
        """Its name for code; JSON has no word for one that is no text."""
        name = self._called(path)
        return name if clean(name) == name else escaped(name)

    def _called(self, path: str) -> str:
        return near(path, self._directory) if below(path, self._directory) else path

    def _said(self) -> Iterator[str]:
        for paths, why in ((self._odd, "no text"), (self._secret, "may hold secrets")):
            if paths:
                named = ", ".join(escaped(self._called(path)) for path in paths[:_NAMED])
                more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
                yield f"left out of the material ({why}): {named}{more}"


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0


def _on_we_go() -> None:
    """Nobody stops this walk but by ending the program."""
