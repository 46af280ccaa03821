"""Finds the folders of skills, commands and templates, in order of precedence, and reads files.

A project's folders are used only if the project is trusted, which `app` decides. Reading is
cautious in every folder: links must not lead out of it, only regular files are read, and the
size and the number of files are limited.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.files import DiskFiles
from refold.place.openat import open_by_walking
from refold.place.port import Real
from refold.safe_open import read_regular
from refold.values.path_names import below
from refold.values.printable_names import escape_name
from refold.values.text import NEW_TEXT_REASON, TrustedText, trust_unchanged

Whose: TypeAlias = Literal["project", "yours", "shipped"]
_IN_A_PROJECT = (".refold/skills", ".agents/skills", ".claude/skills")
_AT_HOME = (".agents/skills", ".claude/skills")
COMMAND_FOLDERS = (".refold/commands", ".claude/commands")
TEMPLATES, AGENT0 = ".refold/skills.md", ".agent0/skills.md"
_SHIPPED_FOLDER = os.path.join(os.path.dirname(__file__), "shipped")
_SHIPPED_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates.md")
_MAX_NAMES = 2_000  # names of one folder that are examined


class SkillScope(Struct, frozen=True, kw_only=True):
    """Where skills are searched: the directories, and which of them are trusted.

    All paths are absolute, with links resolved. `repository` is the root of the repository
    around `directory`, or else `directory` itself. `config` is refold's configuration
    directory. Skills of the project are used in and below the folder `trusted`, or not at all
    if `trusted` is "". `trusted_text` returns the version of a text that the user has accepted.
    """

    directory: str
    repository: str
    home: str
    config: str
    trusted: str
    trusted_text: TrustedText = trust_unchanged


class SkillFolder(Struct, frozen=True):
    """A folder of skills or commands, or a file of templates.

    `called` is its path as shown to the user. Links in it must not lead out of `bound`.
    """

    path: str
    called: str
    whose: Whose
    bound: str = ""
    trusted: TrustedText = trust_unchanged


def folder_of_shipped() -> str:
    """Return the folder of the skills that come with refold."""
    return _SHIPPED_FOLDER


def project_skill_folders(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Return the project's folders of skills, the nearest first, trusted or not."""
    return project_folders(scope, _IN_A_PROJECT)


def project_folders(scope: SkillScope, names: Iterable[str]) -> tuple[SkillFolder, ...]:
    """Return the project's folders with these names, the nearest first, trusted or not."""
    folder_names = tuple(names)
    return tuple(
        _in_project(top, name, scope)
        for top in _project_directories(scope)
        for name in folder_names
    )


def own_folder(scope: SkillScope, name: str) -> SkillFolder:
    """Return the folder `name` in the user's configuration directory."""
    path = os.path.join(scope.config, name)
    return SkillFolder(path, _with_tilde(path, scope.home), "yours")


def skill_folders(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Return the folders of skills that are used, in order of precedence.

    If two skills have the same name, the one in the earlier folder is used.
    """
    return (
        *trusted_folders(project_skill_folders(scope), scope),
        own_folder(scope, "skills"),
        *(SkillFolder(os.path.join(scope.home, n), f"~/{n}", "yours") for n in _AT_HOME),
        SkillFolder(_SHIPPED_FOLDER, "refold", "shipped"),
    )


def project_files(scope: SkillScope, *names: str) -> tuple[SkillFolder, ...]:
    """Return the project's files with these names, the nearest first, trusted or not."""
    return tuple(
        _in_project(top, name, scope)
        for name in names
        for top in _project_directories(scope)
    )


def template_files(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Return the files of templates that are used, in order of precedence.

    If two templates have the same name, the one in the earlier file is used.
    """
    agent0 = os.path.join(scope.home, ".config/agent0/skills.md")
    return (
        *trusted_folders(project_files(scope, TEMPLATES), scope),
        own_folder(scope, "skills.md"),
        *trusted_folders(project_files(scope, AGENT0), scope),
        SkillFolder(agent0, _with_tilde(agent0, scope.home), "yours"),
        SkillFolder(_SHIPPED_TEMPLATES, "refold", "shipped"),
    )


def command_folders(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Return the folders of command files that are used, in order of precedence.

    If two commands have the same name, the one in the earlier folder is used.
    """
    at_home = os.path.join(scope.home, COMMAND_FOLDERS[1])
    return (
        *trusted_folders(project_folders(scope, COMMAND_FOLDERS), scope),
        own_folder(scope, "commands"),
        SkillFolder(at_home, f"~/{COMMAND_FOLDERS[1]}", "yours"),
    )


def trusted_folders(
    places: Iterable[SkillFolder], scope: SkillScope
) -> Iterator[SkillFolder]:
    """Yield those of `places` that are in the trusted folder of `scope`, if it has one."""
    trusted_folder = scope.trusted
    if not trusted_folder:
        return iter(())
    return (place for place in places if below(place.path, trusted_folder))


def _project_directories(scope: SkillScope) -> Iterator[str]:
    """Yield the working directory and its parents up to the root of the repository."""
    directory = scope.directory
    yield directory
    while directory != scope.repository and below(directory, scope.repository):
        directory = os.path.dirname(directory)
        yield directory


def _in_project(top: str, name: str, scope: SkillScope) -> SkillFolder:
    """Return the folder `name` in `top`.

    Its `called` is the path from the working directory. Links in the folder must not lead out
    of the trusted folder, or of `top` if no folder is trusted.
    """
    path = os.path.join(top, name)
    called = os.path.relpath(path, scope.directory)
    bound, trusted = scope.trusted or top, scope.trusted_text
    return SkillFolder(path, called, "project", bound, trusted)


def _with_tilde(path: str, home: str) -> str:
    """Return a path with "~" in place of the home directory, if it is below this directory."""
    base = home.rstrip("/")
    if not home or not path.startswith(f"{base}/"):
        return path
    return f"~{path.removeprefix(base)}"


def list_entries(
    real: str, place: SkillFolder, kind: str, problems: list[str]
) -> list[os.DirEntry[str]]:
    """Return the entries of a folder that are not hidden, sorted by name.

    `real` is the resolved path of `place`; `kind` is the word for its content in messages. If
    the folder cannot be used, return [] and add a sentence to `problems`.
    """
    called = escape_name(place.called)
    try:
        with os.scandir(real) as entries:
            if place.bound and not below(real, place.bound):
                problems.append(
                    f"the {kind} in {called} are ignored: it is a link that leads out of "
                    f"the project, to {escape_name(real)}"
                )
                return []
            visible = [
                entry for entry in islice(entries, _MAX_NAMES) if entry.name[:1] != "."
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        problems.append(f"{called} cannot be listed: {error.strerror}")
        return []
    return sorted(visible, key=lambda entry: entry.name)


def read_shipped(path: str, at_most: int) -> bytes:
    """Return the content of a file that comes with refold.

    Raises the same errors as `content_of`.
    """
    try:
        return read_regular(path, at_most)[0]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ToolFailed(f"it cannot be read: {error.strerror}") from error


def content_of(
    path: str, bound: str, at_most: int, trusted: TrustedText = trust_unchanged
) -> bytes:
    """Return the content of a regular file. Its links must not lead out of `bound`.

    `trusted` replaces the content by the version that the user has accepted. Raises
    `FileNotFoundError`, and `ToolFailed` for a file that cannot be read or is too large.
    """
    real = os.path.realpath(path)
    if not os.path.lexists(real):
        raise FileNotFoundError(path)
    if bound and not below(real, bound):
        raise ToolFailed(f"it is a link that leads out, to {escape_name(real)}")
    # Every start reads these files. Each is directly in its folder, so one `open` is enough;
    # the default way of opening would cost an import.
    files = DiskFiles(os.path.dirname(real), opening=open_by_walking)
    try:
        if os.stat(real, follow_symlinks=False).st_size > at_most:
            raise ToolFailed(f"it is larger than {at_most // 1024} KiB")
    except OSError as error:
        raise ToolFailed(f"it cannot be read: {error.strerror}") from error
    return _check_trust(files.read(Real(real), at_most), real, trusted)


def _check_trust(content: bytes, real: str, trusted: TrustedText) -> bytes:
    """Return the content of the file that the user has accepted; unchanged if it is not text.

    Raises `ToolFailed` if `trusted` returns None: the text was not accepted.
    """
    try:
        current = content.decode("utf-8")
    except UnicodeDecodeError:
        return content  # it is not text for a model
    text = trusted(real, current)
    if text is None:
        raise ToolFailed(NEW_TEXT_REASON)
    return text.encode("utf-8", "surrogatepass")
