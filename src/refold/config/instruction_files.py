"""Reads all files of a trusted folder that instruct the model, to compare them with what is trusted.

It has one list for all kinds: files like AGENTS.md with their imports, skills, templates,
commands, presets, agents, and the notes of the folder. The packages that use the texts parse them;
`trusted_versions` says which version counts.

Every reader of such a text passes it through one function (`values.text.TrustedText`).
Otherwise a command could change a skill or an agent for the next session. Names in the record are
relative to the trusted folder, so a worktree uses the versions of its repository. A change
counts as seen only if the question about its call showed it: a command does not show the new
content, and `!git pull` brings the text of others. Files that refold never reads, such as
`.pre-commit-config.yaml`, have no versions, because tools run the bytes on the disk.
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
_MAX_FILE_BYTES = 256 * 1024  # of one file; the same as of a skill
_MAX_FILES = 2_000
_MAX_FOLDERS = 20_000  # searched below a folder
_MAX_SKILL_DEPTH = 5  # folders within a folder of skills
_SKIP_DIRECTORIES = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))


def read_applicable(
    directory: str, root: str, trusted: str, home: str, text: TrustedText
) -> None:
    """Pass the instructions that apply in `directory` to `text`. All are real paths."""
    folders = [folder for folder in folder_chain(directory, root) if below(folder, trusted)]
    _read(folders, root, home, text)


def read_all(root: str, trusted: str, home: str, text: TrustedText) -> None:
    """Like `read_applicable`, for the trusted folder and every folder below it."""
    _read(folders_below(trusted), root, home, text)


def read_files(paths: Iterable[str], root: str, home: str, text: TrustedText) -> None:
    """Like `read_applicable`, for these files of any kind."""
    for path in paths:
        if os.path.basename(path) in _FILE_BASENAMES:
            read([InstructionFile(path, root)], home, _secret_reason, text)
        else:
            _read_file(path, root, text)


def folders_below(top: str) -> Iterator[str]:
    """`top` and the folders below it that belong to the same repository."""
    waiting, count = [top], 0
    while waiting and count < _MAX_FOLDERS:
        folder = waiting.pop()
        count += 1
        yield folder
        try:
            with os.scandir(folder) as entries:
                waiting += [
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
    """The file of instructions that applies in this folder: the first that exists, or none."""
    paths = (os.path.join(folder, name) for name in FILE_NAMES)
    return tuple(path for path in paths if os.path.lexists(path))[:1]


def is_instruction_file(path: str) -> bool:
    """Whether a file of this path instructs the model by its name, and not only if imported."""
    return path.endswith(_PATH_ENDS) or any(
        f"/{folder}/" in path and path.endswith(_TEXT_SUFFIXES) for folder in TEXT_FOLDERS
    )


def text_at(path: str, root: str, sha256: str) -> str | None:
    """The text of a file, if its content still has this hash."""
    try:
        content = content_at(path, root, _MAX_FILE_BYTES)
        if hashlib.sha256(content.data).hexdigest() != sha256 or _secret_reason(path):
            return None
        return text_of(content)
    except (FileNotFoundError, Unreadable):
        return None


_FILE_BASENAMES = frozenset(map(os.path.basename, FILE_NAMES))
_PATH_ENDS = tuple(f"/{name}" for name in (*FILE_NAMES, *TEXT_FILES))


def _read(folders: Iterable[str], root: str, home: str, text: TrustedText) -> None:
    count = 0
    for folder in folders:
        instructions = [InstructionFile(path, root) for path in instruction_file(folder)]
        read(instructions, home, _secret_reason, text)
        for path in _other_texts(folder):
            count += 1
            if count > _MAX_FILES:
                return
            _read_file(path, root, text)


def _read_file(path: str, root: str, text: TrustedText) -> None:
    real = os.path.realpath(path)
    try:
        content = content_at(real, root, _MAX_FILE_BYTES)
        if content.size <= _MAX_FILE_BYTES and not _secret_reason(real):
            text(real, text_of(content))
    except (FileNotFoundError, Unreadable):
        return  # its users report that


def _secret_reason(real: str) -> str:
    return "it may contain secrets" if is_protected(real, Facts(), writes=False) else ""


def _other_texts(folder: str) -> Iterator[str]:
    yield from (os.path.join(folder, name) for name in TEXT_FILES)
    for name in TEXT_FOLDERS:
        top = os.path.join(folder, name)
        if os.path.isdir(top):
            yield from _texts_below(top)


def _texts_below(top: str) -> Iterator[str]:
    """The texts below `top`. Folders may be links; the limit of depth ends a cycle."""
    for folder, names, files in os.walk(top, followlinks=True):
        depth = os.path.relpath(folder, top).count(os.sep) + 1
        names[:] = sorted(n for n in names if n[:1] != "." and depth < _MAX_SKILL_DEPTH)
        yield from (
            os.path.join(folder, n) for n in sorted(files) if n.endswith(_TEXT_SUFFIXES)
        )
