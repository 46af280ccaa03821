"""What lies in a folder, beside settings, that would tell the model what to do.

Only names and sizes, to be shown before the folder is trusted. What the files say is
read elsewhere, and only if it is.
"""

import os
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from refold.place.names import escaped
from refold.prompts.instructions import of_project
from refold.prompts.repository import chain, root_of

# Folders with one file or folder for each prompt, skill or agent.
_FOLDERS = (
    ".refold/prompts", ".refold/skills", ".refold/agents", ".agents/skills", ".claude/skills",
    ".claude/agents", ".refold/commands", ".claude/commands",
)  # fmt: skip
_FILES = (".refold/skills.md", ".agent0/skills.md", ".agent/memory.md")
_MOST = 100
_MOST_NAMES = 8


class Text(Struct, frozen=True):
    """`folder` is the real path of the folder that it lies in; `about` says how much it is."""

    folder: str
    called: str
    about: str


class Texts(Struct, frozen=True):
    """All of a folder, and `root`: the repository that it lies in, or the folder itself."""

    root: str
    found: tuple[Text, ...] = ()

    @property
    def names(self) -> str:
        """Some of them, for a sentence."""
        named = ", ".join(each.called for each in self.found[:_MOST_NAMES])
        more = len(self.found) - _MOST_NAMES
        return f"{named} and {more} more" if more > 0 else named


def texts(directory: str | os.PathLike[str]) -> Texts:
    """Raises nothing that a folder could cause."""
    real = os.path.realpath(directory)
    root = root_of(real)
    found = list[Text]()
    for file in of_project(real, root):
        about = _size(file.path)
        found.append(Text(_folder(file.path, real, root), file.called, about))
    for folder in chain(real, root):
        found += _others(folder, real)
    return Texts(root, tuple(found))


def in_words(found: Texts) -> tuple[str, ...]:
    """A line for each, fit for a screen."""
    return tuple(f"{each.called} ({each.about})" for each in found.found)


def _folder(path: str, directory: str, root: str) -> str:
    """The folder of the chain that the file counts for: .refold/x is the one above."""
    folders = chain(directory, root)
    found: str = os.path.dirname(path)
    while found not in folders:
        found = os.path.dirname(found)
    return found


def _others(folder: str, directory: str) -> Iterator[Text]:
    for name in _FILES:
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            yield Text(folder, _called(path, directory), _size(path))
    for name in _FOLDERS:
        path = os.path.join(folder, name)
        try:
            with os.scandir(path) as entries:
                many = sum(1 for e in islice(entries, _MOST) if e.name[:1] != ".")
        except OSError:
            continue
        if many:
            about = f"{_MOST} or more" if many == _MOST else str(many)
            yield Text(folder, _called(path, directory), f"{about} in it")


def _called(path: str, directory: str) -> str:
    return escaped(os.path.relpath(path, directory))


def _size(path: str) -> str:
    try:
        return f"{os.stat(path).st_size:,} bytes"
    except OSError:
        return "cannot be read"
