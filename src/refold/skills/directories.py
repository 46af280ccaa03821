"""The folders of skills, templates and commands, in order of precedence; and reading them safely.

Folders of a project count only if it is trusted; `app` decides that. Files are read as untrusted:
links must not lead out, special files are refused, and size and number are limited.
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
_MAX_NAMES = 2_000  # names that are looked at in one folder


class SkillScope(Struct, frozen=True, kw_only=True):
    """What skills are searched around. All paths are absolute, links resolved.

    `repository` is the root of the repository of `directory`, or the same. `config` is
    refold's own settings directory. `trusted` is the folder in and below which skills
    count; "" if none of the project's do. `trusted_text` gives the versions that the user knows.
    """

    directory: str
    repository: str
    home: str
    config: str
    trusted: str
    trusted_text: TrustedText = trust_unchanged


class SkillFolder(Struct, frozen=True):
    """A folder of skills, or a file of templates. `bound`: links may not lead out of it."""

    path: str
    called: str
    whose: Whose
    bound: str = ""
    trusted: TrustedText = trust_unchanged


def folder_of_shipped() -> str:
    """The skills that come with refold."""
    return _SHIPPED_FOLDER


def project_skill_folders(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """The folders of skills in the workspace, the nearest first, trusted or not."""
    return project_folders(scope, _IN_A_PROJECT)


def project_folders(scope: SkillScope, names: Iterable[str]) -> tuple[SkillFolder, ...]:
    """Folders of these names in the workspace, the nearest first, trusted or not."""
    kinds = tuple(names)
    return tuple(
        _in_project(top, name, scope)
        for top in _project_directories(scope)
        for name in kinds
    )


def own_folder(scope: SkillScope, name: str) -> SkillFolder:
    """The folder of this name among the user's settings."""
    path = os.path.join(scope.config, name)
    return SkillFolder(path, _with_tilde(path, scope.home), "yours")


def skill_folders(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Every folder of skills that counts. The first that has a name wins."""
    return (
        *trusted_folders(project_skill_folders(scope), scope),
        own_folder(scope, "skills"),
        *(SkillFolder(os.path.join(scope.home, n), f"~/{n}", "yours") for n in _AT_HOME),
        SkillFolder(_SHIPPED_FOLDER, "refold", "shipped"),
    )


def project_files(scope: SkillScope, *names: str) -> tuple[SkillFolder, ...]:
    """The files of templates in the workspace, the nearest first, trusted or not."""
    return tuple(
        _in_project(top, name, scope)
        for name in names
        for top in _project_directories(scope)
    )


def template_files(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Every file of templates that counts. The first that has a name wins."""
    agent0 = os.path.join(scope.home, ".config/agent0/skills.md")
    return (
        *trusted_folders(project_files(scope, TEMPLATES), scope),
        own_folder(scope, "skills.md"),
        *trusted_folders(project_files(scope, AGENT0), scope),
        SkillFolder(agent0, _with_tilde(agent0, scope.home), "yours"),
        SkillFolder(_SHIPPED_TEMPLATES, "refold", "shipped"),
    )


def command_folders(scope: SkillScope) -> tuple[SkillFolder, ...]:
    """Every folder of commands that counts. The first that has a name wins."""
    at_home = os.path.join(scope.home, COMMAND_FOLDERS[1])
    return (
        *trusted_folders(project_folders(scope, COMMAND_FOLDERS), scope),
        own_folder(scope, "commands"),
        SkillFolder(at_home, f"~/{COMMAND_FOLDERS[1]}", "yours"),
    )


def trusted_folders(
    places: Iterable[SkillFolder], scope: SkillScope
) -> Iterator[SkillFolder]:
    """The `places` in a trusted folder."""
    trusted = scope.trusted
    return (place for place in places if trusted and below(place.path, trusted))


def _project_directories(scope: SkillScope) -> Iterator[str]:
    """The folders from the workspace up to the root of its repository."""
    directory = scope.directory
    yield directory
    while directory != scope.repository and below(directory, scope.repository):
        directory = os.path.dirname(directory)
        yield directory


def _in_project(top: str, name: str, scope: SkillScope) -> SkillFolder:
    path = os.path.join(top, name)
    called = os.path.relpath(path, scope.directory)
    bound, trusted = scope.trusted or top, scope.trusted_text
    return SkillFolder(path, called, "project", bound, trusted)


def _with_tilde(path: str, home: str) -> str:
    inside = home and path.startswith(home.rstrip("/") + "/")
    return f"~{path[len(home.rstrip('/')) :]}" if inside else path


def list_entries(
    real: str, place: SkillFolder, kind: str, problems: list[str]
) -> list[os.DirEntry[str]]:
    """The entries that are not hidden, by name. `real` is the resolved path of the folder.

    If it cannot be read, a sentence is added to `problems`; `kind` names its content.
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
    return sorted(visible, key=lambda each: each.name)


def read_shipped(path: str, at_most: int) -> bytes:
    """What is in a file of ours. Raises as `content_of`."""
    try:
        return read_regular(path, at_most)[0]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ToolFailed(f"it cannot be read: {error.strerror}") from error


def content_of(
    path: str, bound: str, at_most: int, trusted: TrustedText = trust_unchanged
) -> bytes:
    """A regular file, read as `DiskFiles` reads. Its links may not lead out of `bound`.

    It is the version that is `trusted`. Raises `FileNotFoundError`, and `ToolFailed` for what cannot be read.
    """
    real = os.path.realpath(path)
    if not os.path.lexists(real):
        raise FileNotFoundError(path)
    if bound and not below(real, bound):
        raise ToolFailed(f"it is a link that leads out, to {escape_name(real)}")
    # It is one step from its folder, and every start takes it: the kernel's own way in
    # one call costs an import.
    files = DiskFiles(os.path.dirname(real), opening=open_by_walking)
    try:
        if os.stat(real, follow_symlinks=False).st_size > at_most:
            raise ToolFailed(f"it is larger than {at_most // 1024} KiB")
    except OSError as error:
        raise ToolFailed(f"it cannot be read: {error.strerror}") from error
    return _check_trust(files.read(Real(real), at_most), real, trusted)


def _check_trust(content: bytes, real: str, trusted: TrustedText) -> bytes:
    try:
        current = content.decode("utf-8")
    except UnicodeDecodeError:
        return content  # no text for a model
    text = trusted(real, current)
    if text is None:
        raise ToolFailed(NEW_TEXT_REASON)
    return text.encode("utf-8", "surrogatepass")
