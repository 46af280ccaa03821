"""Reads all files of a trusted folder that instruct the model.

They are compared with the versions that the user has trusted. This module knows all kinds:
files like AGENTS.md with their imports, skills, templates, commands, presets, agents, and the
notes of the folder. The packages that use the texts parse them. `trusted_versions` decides
which version of a text is used.

All code that reads a text for the model passes it through `values.text.TrustedText`, because a
command may have changed the file. Names in the record of trusted versions are relative to the
trusted folder, so a worktree uses the versions of its repository. A change of a file counts as
seen by the user only if the permission question showed the new content; the question about a
command does not show it. Files that refold never reads, such as `.pre-commit-config.yaml`, have
no versions, because tools run the bytes on the disk.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator

from refold.config.project import TEXT_FILES, TEXT_FOLDERS
from refold.permissions.facts import Facts, is_protected
from refold.prompts.instructions import FILE_NAMES, InstructionFile, read
from refold.prompts.read_text import Unreadable, content_at, text_of
from refold.prompts.repository import folder_chain
from refold.values.path_names import below
from refold.values.text import TrustedText

_TEXT_SUFFIXES = (".md", ".yml", ".yaml")
_MAX_FILE_BYTES = 256 * 1024  # of one file; the same as for a skill
_MAX_FILES = 2_000
_MAX_FOLDERS = 20_000  # searched below a folder
_MAX_SKILL_DEPTH = 5  # folders within a folder of skills
_SKIP_DIRECTORIES = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))


def read_applicable(
    directory: str, root: str, trusted: str, home: str, compare: TrustedText
) -> None:
    """Call `compare` with each text that instructs a model which works in `directory`.

    The texts are in those folders from `directory` up to `root` that are in `trusted`. All
    paths are real.
    """
    folders = [folder for folder in folder_chain(directory, root) if below(folder, trusted)]
    _read_folders(folders, root, home, compare)


def read_all(root: str, trusted: str, home: str, compare: TrustedText) -> None:
    """Call `compare` with each text for the model in `trusted` and the folders below it."""
    _read_folders(folders_below(trusted), root, home, compare)


def read_files(paths: Iterable[str], root: str, home: str, compare: TrustedText) -> None:
    """Call `compare` with the text of each of these files, of whatever kind it is."""
    for path in paths:
        if os.path.basename(path) in _FILE_BASENAMES:
            read([InstructionFile(path, root)], home, _secret_reason, compare)
        else:
            _read_file(path, root, compare)


def folders_below(top: str) -> Iterator[str]:
    """Yield `top` and the folders below it that belong to the git repository of `top`."""
    unread, count = [top], 0
    while unread and count < _MAX_FOLDERS:
        folder = unread.pop()
        count += 1
        yield folder
        try:
            with os.scandir(folder) as entries:
                unread += [
                    entry.path
                    for entry in entries
                    if entry.name[:1] != "."
                    and entry.name not in _SKIP_DIRECTORIES
                    and entry.is_dir(follow_symlinks=False)
                    and not os.path.lexists(os.path.join(entry.path, ".git"))
                ]
        except OSError:
            continue


def instruction_file(folder: str) -> tuple[str, ...]:
    """Return a tuple with the path of the first file of instructions in this folder.

    Return () if the folder has none.
    """
    paths = (os.path.join(folder, name) for name in FILE_NAMES)
    return tuple(path for path in paths if os.path.lexists(path))[:1]


def is_instruction_file(path: str) -> bool:
    """Whether a file instructs the model because of its path, without being imported."""
    return path.endswith(_PATH_ENDS) or any(
        f"/{folder}/" in path and path.endswith(_TEXT_SUFFIXES) for folder in TEXT_FOLDERS
    )


def text_at(path: str, root: str, sha256: str) -> str | None:
    """Return the text of a file; None if its content does not have the hash `sha256`.

    Also return None if the file cannot be read or may contain secrets.
    """
    try:
        content = content_at(path, root, _MAX_FILE_BYTES)
        if hashlib.sha256(content.data).hexdigest() != sha256 or _secret_reason(path):
            return None
        return text_of(content)
    except (FileNotFoundError, Unreadable):
        return None


_FILE_BASENAMES = frozenset(map(os.path.basename, FILE_NAMES))
_PATH_ENDS = tuple(f"/{name}" for name in (*FILE_NAMES, *TEXT_FILES))


def _read_folders(
    folders: Iterable[str], root: str, home: str, compare: TrustedText
) -> None:
    """Call `compare` with each instruction file, and with up to `_MAX_FILES` other texts."""
    count = 0
    for folder in folders:
        instructions = [InstructionFile(path, root) for path in instruction_file(folder)]
        read(instructions, home, _secret_reason, compare)
        for path in _other_texts(folder):
            count += 1
            if count > _MAX_FILES:
                return
            _read_file(path, root, compare)


def _read_file(path: str, root: str, compare: TrustedText) -> None:
    """Call `compare` with the text of a file, unless it is too large, secret or unreadable."""
    real = os.path.realpath(path)
    try:
        content = content_at(real, root, _MAX_FILE_BYTES)
        if content.size <= _MAX_FILE_BYTES and not _secret_reason(real):
            compare(real, text_of(content))
    except (FileNotFoundError, Unreadable):
        return  # the code that uses the file reports that


def _secret_reason(real: str) -> str:
    """Return why the file must not be sent to a model; "" if it may be sent."""
    return "it may contain secrets" if is_protected(real, Facts(), writes=False) else ""


def _other_texts(folder: str) -> Iterator[str]:
    """Yield the paths of the folder's other texts for the model, such as skills and prompts."""
    yield from (os.path.join(folder, name) for name in TEXT_FILES)
    for name in TEXT_FOLDERS:
        top = os.path.join(folder, name)
        if os.path.isdir(top):
            yield from _texts_below(top)


def _texts_below(top: str) -> Iterator[str]:
    """Yield the paths of the text files below `top`.

    Links to folders are followed. A limit of depth ends a cycle of links.
    """
    for folder, names, files in os.walk(top, followlinks=True):
        depth = os.path.relpath(folder, top).count(os.sep) + 1
        is_deepest = depth >= _MAX_SKILL_DEPTH
        names[:] = [] if is_deepest else sorted(n for n in names if n[:1] != ".")
        yield from (
            os.path.join(folder, n) for n in sorted(files) if n.endswith(_TEXT_SUFFIXES)
        )
