"""The files and folders that a question is about, as a Python value and as a prompt.

One text is a string; several are a dictionary from path to text; what is too large for that
is a list of paths. Files that are not text, that git ignores or that may contain secrets are left
out of folders, and reported. A flat prompt contains all of the material, a recursive one only
describes the variable that holds it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.permissions.facts import Facts, is_protected
from refold.place.file_walk import walk
from refold.place.files import DiskFiles
from refold.place.port import Real
from refold.rlm.initial_variables import Files
from refold.values.path_names import below, near
from refold.values.printable_names import escaped
from refold.values.text import clean

MOST = 200 * 1024 * 1024  # bytes that are held as a value
_PER_TOKEN = 4  # bytes
_NAMED = 5  # files that are left out, by name

Value = str | dict[str, str] | list[str]
VARIABLE = "context"
_SHOWN = 200  # characters


class Material(Struct, frozen=True):
    """`value` is None if there is none. `left_out` are sentences for the user."""

    value: Value | None = None
    files: int = 0
    size: int = 0  # bytes
    left_out: tuple[str, ...] = ()
    read: Files = ()  # real paths, and the sha256 of each, in the order of the texts

    @property
    def tokens(self) -> int:
        """An estimate, also for material that is only listed."""
        return -(-self.size // _PER_TOKEN)

    @property
    def about(self) -> str:
        """The description that a model reads instead of the material."""
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
    """Read files and folders. Raises `BadInput` for those that cannot be read.

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
        self._only = False  # is it a single file that was named?
        self._read = list[tuple[str, str]]()
        self._odd, self._secret = list[str](), list[str]()

    def take(self, name: str) -> None:
        real = os.path.realpath(os.path.join(self._directory, os.path.expanduser(name)))
        if os.path.isdir(real):
            for path in sorted(walk(real, _no_cancellation)):
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
        if is_protected(path, Facts(), writes=False) or self._unread(path):
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
                raise BadInput(f"--context {self._called(path)!r} is not UTF-8 text")
            self._odd.append(path)
            return None
        self._read.append((escaped(path), sha256(content).hexdigest()))
        return text

    def _key(self, path: str) -> str:
        """The path as a key for code: escaped if it is not valid Unicode."""
        name = self._called(path)
        return name if clean(name) == name else escaped(name)

    def _called(self, path: str) -> str:
        return near(path, self._directory) if below(path, self._directory) else path

    def _said(self) -> Iterator[str]:
        for paths, why in ((self._odd, "no text"), (self._secret, "may contain secrets")):
            if paths:
                named = ", ".join(escaped(self._called(path)) for path in paths[:_NAMED])
                more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
                yield f"left out of the material ({why}): {named}{more}"


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0


def _no_cancellation() -> None:
    """The walk has no cancellation: only the end of the program stops it."""


def flat_prompt() -> str:
    """The system prompt of a flat call."""
    return Path(__file__).with_name("flat.md").read_text(encoding="utf-8").strip()


def flat_text(question: str, found: Material) -> str:
    """The whole material, then the question."""
    match found.value:
        case str() as text:
            parts = [_piece(text)]
        case dict() as texts:
            parts = [_piece(text, path) for path, text in texts.items()]
        case _:
            parts = list[str]()
    return "\n\n".join((*parts, question))


def recursive_text(question: str, found: Material, *, shown: bool = False) -> str:
    """The question, and the variable that holds the material. `shown`: also how it begins."""
    if found.value is None:
        return question
    about = f"The material is in the variable `{VARIABLE}`: {found.about}."
    return "\n\n".join((question, about, *([_beginning(found.value)] if shown else [])))


def _beginning(value: Value) -> str:
    """How to loop over it, and its beginning: what a large model looks up anyway."""
    match value:
        case str():
            begins, way = repr(value[:_SHOWN]), f"for line in {VARIABLE}.splitlines():"
        case dict():
            path, text = next(iter(value.items()))
            begins, way = (
                f"{path!r}: {text[:_SHOWN]!r}",
                f"for path, text in {VARIABLE}.items():",
            )
        case list():
            begins, way = repr(value[0]), f"for path in {VARIABLE}:"
    return f"Go through it with `{way}`. It begins: {begins}"


def _piece(text: str, path: str = "") -> str:
    inside = text.replace("</material", "<\\/material")
    name = path.replace('"', "'")
    about = f' path="{name}"' if path else ""
    return f"<material{about}>\n{inside}\n</material>"
