"""Reads the files and folders that a question is about, as a Python value and as a prompt.

A single file becomes a text, and several become a dictionary from path to text; material that
is too large becomes a list of paths. Files in folders are left out and reported if they are not
text, if git ignores them or if they may contain secrets. A flat prompt contains all of the
material; a recursive prompt only describes the variable that contains it.
"""

import math
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

MAX_VALUE_BYTES = 200 * 1024 * 1024  # larger material is listed as paths
_BYTES_PER_TOKEN = 4
_MAX_NAMED_FILES = 5  # files named in a message about omitted files

Value = str | dict[str, str] | list[str]
VARIABLE_NAME = "context"
_SHOWN_CHARS = 200


class Material(Struct, frozen=True):
    """The material of a question. `value` is None if the question has no material.

    `left_out` are sentences for the user about files that were left out.
    """

    value: Value | None = None
    files: int = 0
    size: int = 0  # bytes
    left_out: tuple[str, ...] = ()
    read: Files = ()  # the real path and the sha256 of each file, in the order of the texts

    @property
    def tokens(self) -> int:
        """An estimate of the number of tokens, also in files that are only listed."""
        return math.ceil(self.size / _BYTES_PER_TOKEN)

    @property
    def description(self) -> str:
        """A description for a model that does not get the material; "" without material."""
        match self.value:
            case None:
                return ""
            case str():
                return f"a text of {len(self.value):,} characters"
            case dict():
                chars = sum(len(text) for text in self.value.values())
                return (
                    f"a dict from path to text, {self.files:,} files, {chars:,} characters "
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
    """Read the files and folders that `names` lists, relative to `directory`.

    `why_unreadable` returns why the file at an absolute path may not be read, or "". Material
    of more than `max_bytes` is only listed. Raises `BadInput` for a name that cannot be read.
    """
    if not names:
        return Material()
    reader = _MaterialReader(directory, why_unreadable)
    for name in names:
        reader.add(name)
    return reader.to_material(max_bytes)


class _MaterialReader:
    """Collects the named files and the files of named folders, then reads them."""

    def __init__(self, directory: str, why_unreadable: Callable[[str], str]) -> None:
        self._directory, self._why_unreadable = directory, why_unreadable
        self._files = dict[str, int]()  # real path and size of each file
        self._is_one_file = False  # True if a single file was named
        self._file_hashes = list[tuple[str, str]]()
        self._no_text, self._protected = list[str](), list[str]()

    def add(self, name: str) -> None:
        """Add a file, or the files in a folder. Raises `BadInput`."""
        real = os.path.realpath(os.path.join(self._directory, os.path.expanduser(name)))
        if os.path.isdir(real):
            for path in sorted(walk(real, on_step=_no_cancellation)):
                self._add_from_folder(path)
            return
        if not os.path.lexists(real):
            raise BadInput(f"--context {name!r}: there is no such file or folder")
        if reason := self._why_unreadable(real):
            raise BadInput(f"--context {name!r} is not read: {reason}")
        self._is_one_file = not self._files  # another file or folder changes that
        self._files[real] = _file_bytes(real)

    def to_material(self, max_bytes: int) -> Material:
        """Return one text, texts by path, or only paths if the files exceed `max_bytes`."""
        file_bytes = sum(self._files.values())
        if file_bytes > max_bytes:
            paths = [self._key(path) for path in self._files]
            notes = tuple(self._omission_notes())
            return Material(paths, files=len(paths), size=file_bytes, left_out=notes)
        texts = dict[str, str]()
        for path in self._files:
            if (text := self._text(path)) is not None:
                texts[self._key(path)] = text
        if not texts:
            raise BadInput("--context names nothing that can be read as text")
        text_bytes = sum(len(text.encode(errors="replace")) for text in texts.values())
        value: Value = next(iter(texts.values())) if self._is_one_file else texts
        return Material(
            value,
            files=len(texts),
            size=text_bytes,
            left_out=tuple(self._omission_notes()),
            read=tuple(self._file_hashes),
        )

    def _add_from_folder(self, path: str) -> None:
        """Add a file of a folder, or note that it is left out because it is protected."""
        if path in self._files:
            return
        if is_protected(path, Facts(), writes=False) or self._why_unreadable(path):
            self._protected.append(path)
        else:
            self._files[path] = _file_bytes(path)
            self._is_one_file = False

    def _text(self, path: str) -> str | None:
        """Return the text of a file, or None if it cannot be read or is not text.

        If it is the only file, raise `BadInput` instead of returning None.
        """
        files = DiskFiles(os.path.dirname(path))
        try:
            content = files.read(Real(path), MAX_VALUE_BYTES)
        except ToolFailed as error:
            if self._is_one_file:
                raise BadInput(f"--context: {str(error).rstrip('.')}") from error
            self._no_text.append(path)
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = None
        if text is None or "\0" in text:
            if self._is_one_file:
                raise BadInput(f"--context {self._display_path(path)!r} is not UTF-8 text")
            self._no_text.append(path)
            return None
        self._file_hashes.append((escape_name(path), sha256(content).hexdigest()))
        return text

    def _key(self, path: str) -> str:
        """Return a path as code sees it, escaped if it is not valid Unicode."""
        name = self._display_path(path)
        return name if clean(name) == name else escape_name(name)

    def _display_path(self, path: str) -> str:
        return (
            relative_name(path, self._directory) if below(path, self._directory) else path
        )

    def _omission_notes(self) -> Iterator[str]:
        """Yield sentences for the user about the files that were left out."""
        omissions = ((self._no_text, "no text"), (self._protected, "may contain secrets"))
        for paths, why in omissions:
            if not paths:
                continue
            first_paths = paths[:_MAX_NAMED_FILES]
            names = ", ".join(escape_name(self._display_path(path)) for path in first_paths)
            unnamed = len(paths) - len(first_paths)
            if unnamed:
                names += f" and {unnamed} more"
            yield f"left out of the material ({why}): {names}"


def _file_bytes(path: str) -> int:
    """Return the size of a file, or 0 if it cannot be read."""
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0


def _no_cancellation() -> None:
    """Do nothing. It is called to check for a cancellation, which cannot happen here."""


def flat_prompt() -> str:
    """Return the system prompt of a flat call."""
    return Path(__file__).with_name("flat.md").read_text(encoding="utf-8").strip()


def flat_text(question: str, content: Material) -> str:
    """Return a prompt with the whole material, followed by the question."""
    match content.value:
        case str() as text:
            parts = [_quote_excerpt(text)]
        case dict() as texts:
            parts = [_quote_excerpt(text, path) for path, text in texts.items()]
        case _:
            parts = list[str]()
    return "\n\n".join((*parts, question))


def recursive_text(question: str, content: Material, *, shown: bool = False) -> str:
    """Return a prompt with the question and a description of the variable with the material.

    If `shown`, the prompt also shows the beginning of the material.
    """
    if content.value is None:
        return question
    about = f"The material is in the variable `{VARIABLE_NAME}`: {content.description}."
    texts = [question, about]
    if shown:
        texts.append(_beginning_text(content.value))
    return "\n\n".join(texts)


def _beginning_text(value: Value) -> str:
    """Return text on how the value begins and how to loop over it."""
    match value:
        case str():
            beginning = repr(value[:_SHOWN_CHARS])
            loop = f"for line in {VARIABLE_NAME}.splitlines():"
        case dict():
            path, text = next(iter(value.items()))
            beginning = f"{path!r}: {text[:_SHOWN_CHARS]!r}"
            loop = f"for path, text in {VARIABLE_NAME}.items():"
        case list():
            beginning, loop = repr(value[0]), f"for path in {VARIABLE_NAME}:"
    return f"Go through it with `{loop}`. It begins: {beginning}"


def _quote_excerpt(text: str, path: str = "") -> str:
    """Return a text in a tag, which the text itself cannot close."""
    inside = text.replace("</material", "<\\/material")
    name = path.replace('"', "'")
    about = f' path="{name}"' if path else ""
    return f"<material{about}>\n{inside}\n</material>"
