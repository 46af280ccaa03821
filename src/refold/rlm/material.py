"""The files and folders that a question is about, as a Python value and as a prompt.

One text is a string; several are a dictionary from path to text; larger material is a list
of paths. Files that are not text, that git ignores or that may contain secrets are left
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
from refold.values.path_names import below, relative_name
from refold.values.printable_names import escape_name
from refold.values.text import clean

MAX_VALUE_BYTES = 200 * 1024 * 1024  # more is listed as paths
_BYTES_PER_TOKEN = 4
_MAX_NAMED_FILES = 5  # of those left out

Value = str | dict[str, str] | list[str]
VARIABLE_NAME = "context"
_SHOWN_CHARS = 200


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
        return -(-self.size // _BYTES_PER_TOKEN)

    @property
    def description(self) -> str:
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


def read_material(
    names: Sequence[str],
    directory: str,
    why_unreadable: Callable[[str], str],
    max_bytes: int = MAX_VALUE_BYTES,
) -> Material:
    """Read files and folders. Raises `BadInput` for those that cannot be read.

    `why_unreadable` returns why the file at an absolute path may not be read, or "".
    """
    if not names:
        return Material()
    gathering = _MaterialReader(directory, why_unreadable)
    for name in names:
        gathering.add(name)
    return gathering.to_material(max_bytes)


class _MaterialReader:
    def __init__(self, directory: str, why_unreadable: Callable[[str], str]) -> None:
        self._directory, self._why_unreadable = directory, why_unreadable
        self._files = dict[str, int]()  # real path and size
        self._only = False  # a single file was named
        self._read = list[tuple[str, str]]()
        self._odd, self._secret = list[str](), list[str]()

    def add(self, name: str) -> None:
        real = os.path.realpath(os.path.join(self._directory, os.path.expanduser(name)))
        if os.path.isdir(real):
            for path in sorted(walk(real, _no_cancellation)):
                self._add(path)
            return
        if not os.path.lexists(real):
            raise BadInput(f"--context {name!r}: there is no such file or folder")
        if reason := self._why_unreadable(real):
            raise BadInput(f"--context {name!r} is not read: {reason}")
        self._only = not self._files
        self._files[real] = _file_bytes(real)

    def to_material(self, max_bytes: int) -> Material:
        size = sum(self._files.values())
        if size > max_bytes:
            paths = [self._key(path) for path in self._files]
            return Material(paths, len(paths), size, tuple(self._omission_notes()))
        texts = dict[str, str]()
        for path in self._files:
            if (text := self._text(path)) is not None:
                texts[self._key(path)] = text
        if not texts:
            raise BadInput("--context names nothing that can be read as text")
        size = sum(len(text.encode(errors="replace")) for text in texts.values())
        is_single = self._only and len(self._files) == 1
        value: Value = next(iter(texts.values())) if is_single else texts
        return Material(
            value, len(texts), size, tuple(self._omission_notes()), tuple(self._read)
        )

    def _add(self, path: str) -> None:
        if path in self._files:
            return
        if is_protected(path, Facts(), writes=False) or self._why_unreadable(path):
            self._secret.append(path)
        else:
            self._files[path] = _file_bytes(path)
            self._only = False

    def _text(self, path: str) -> str | None:
        files = DiskFiles(os.path.dirname(path))
        try:
            content = files.read(Real(path), MAX_VALUE_BYTES)
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
                raise BadInput(f"--context {self._display_path(path)!r} is not UTF-8 text")
            self._odd.append(path)
            return None
        self._read.append((escape_name(path), sha256(content).hexdigest()))
        return text

    def _key(self, path: str) -> str:
        """The path as a key for code: escaped if it is not valid Unicode."""
        name = self._display_path(path)
        return name if clean(name) == name else escape_name(name)

    def _display_path(self, path: str) -> str:
        return (
            relative_name(path, self._directory) if below(path, self._directory) else path
        )

    def _omission_notes(self) -> Iterator[str]:
        for paths, why in ((self._odd, "no text"), (self._secret, "may contain secrets")):
            if paths:
                named = ", ".join(
                    escape_name(self._display_path(path))
                    for path in paths[:_MAX_NAMED_FILES]
                )
                rest = (
                    f" and {len(paths) - _MAX_NAMED_FILES} more"
                    if len(paths) > _MAX_NAMED_FILES
                    else ""
                )
                yield f"left out of the material ({why}): {named}{rest}"


def _file_bytes(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0


def _no_cancellation() -> None:
    """Do nothing: the walk has no cancellation; only the end of the program stops it."""


def flat_prompt() -> str:
    """The system prompt of a flat call."""
    return Path(__file__).with_name("flat.md").read_text(encoding="utf-8").strip()


def flat_text(question: str, content: Material) -> str:
    """The whole material, then the question."""
    match content.value:
        case str() as text:
            parts = [_quote_excerpt(text)]
        case dict() as texts:
            parts = [_quote_excerpt(text, path) for path, text in texts.items()]
        case _:
            parts = list[str]()
    return "\n\n".join((*parts, question))


def recursive_text(question: str, content: Material, *, shown: bool = False) -> str:
    """The question and the material's variable; with `shown` also its beginning."""
    if content.value is None:
        return question
    about = f"The material is in the variable `{VARIABLE_NAME}`: {content.description}."
    return "\n\n".join(
        (question, about, *([_beginning_text(content.value)] if shown else []))
    )


def _beginning_text(value: Value) -> str:
    """Show how to loop over the value, and how it begins, so that the model need not look."""
    match value:
        case str():
            begins, way = (
                repr(value[:_SHOWN_CHARS]),
                f"for line in {VARIABLE_NAME}.splitlines():",
            )
        case dict():
            path, text = next(iter(value.items()))
            begins, way = (
                f"{path!r}: {text[:_SHOWN_CHARS]!r}",
                f"for path, text in {VARIABLE_NAME}.items():",
            )
        case list():
            begins, way = repr(value[0]), f"for path in {VARIABLE_NAME}:"
    return f"Go through it with `{way}`. It begins: {begins}"


def _quote_excerpt(text: str, path: str = "") -> str:
    inside = text.replace("</material", "<\\/material")
    name = path.replace('"', "'")
    about = f' path="{name}"' if path else ""
    return f"<material{about}>\n{inside}\n</material>"
