"""The root, branch and state of a repository, read from its files without running git.

git runs programs that the settings of a repository name, so it is not asked. The few files are read
as untrusted: anything unexpected counts as nothing found.
"""

import os
import re
import zlib

from msgspec import Struct

from refold.prompts.read_text import Unreadable, content
from refold.values.printable_names import escape_name, shorten
from refold.values.text import escape_marks

_MAX_NAME_FILE_BYTES = 4096  # of a file that holds one name
_MAX_PACKED_REFS_BYTES = 256 * 1024  # of the list of all branches
_MAX_OBJECT_BYTES = 64 * 1024  # of a commit, as it is kept, and unpacked
_MAX_SUBJECT_CHARS = 72  # of a branch, and of what a commit is called
_HASH_PATTERN = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"


class Git(Struct, frozen=True):
    """`branch` is "" where none is checked out; so is `subject` where it is not at hand."""

    branch: str = ""
    commit: str = ""  # the beginning of its hash
    subject: str = ""  # what the last commit is called


def root_of(directory: str) -> str:
    """The nearest folder upwards that is a repository, else `directory`. Links followed."""
    real = folder = os.path.realpath(directory)
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return real
        folder = above
    return folder


def folder_chain(directory: str, root: str) -> tuple[str, ...]:
    """The folders from `root` down to `directory`, both real paths."""
    folders = [directory]
    while folders[-1] != root and (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    return tuple(reversed(folders))


def git_state(root: str) -> Git | None:
    """The state of the repository in `root`; None if there is none that can be read."""
    head = _head(root)
    if head is None:
        return None
    name, commit, common = head
    branch = _shorten(name.removeprefix("refs/heads/"))
    if not commit:
        return Git(branch)
    return Git(branch, commit[:8], _shorten(_subject(commit, common)))


def head_commit(root: str) -> str:
    """The hash of the commit that is checked out; "" if there is none."""
    head = _head(root)
    return head[1] if head else ""


def _head(root: str) -> tuple[str, str, str] | None:
    """The branch, its commit, and the directory of the repository; each may be ""."""
    place = _git_directory(os.path.join(root, ".git"), root)
    head = _read_stripped(os.path.join(place, "HEAD")) if place else ""
    if not head:
        return None
    name = head.removeprefix("ref: ") if head.startswith("ref: ") else ""
    if name and not _is_branch(name):
        return None
    common = _common_directory(place)
    commit = _commit(name, place, common) if name else head
    return name, commit if re.fullmatch(_HASH_PATTERN, commit) else "", common


def _git_directory(dot_git: str, root: str) -> str:
    """Where the repository's own files are: `.git`, or where a file `.git` points to."""
    if os.path.isdir(dot_git):
        return dot_git
    words = _read_stripped(dot_git)
    if not words.startswith("gitdir: "):
        return ""
    return os.path.join(root, words.removeprefix("gitdir: "))


def _common_directory(place: str) -> str:
    """The git directory of the whole repository, of which `place` may be one working tree."""
    path = _read_stripped(os.path.join(place, "commondir"))
    return os.path.join(place, path) if path else place


def _is_branch(name: str) -> bool:
    odd = ".." in name or any(c.isspace() or not c.isprintable() for c in name)
    return name.startswith("refs/heads/") and not odd and not name.endswith("/.invalid")


def _commit(name: str, place: str, common: str) -> str:
    for folder in (place, common):
        if commit_hash := _read_stripped(os.path.join(folder, name)):
            return commit_hash
    for line in _text(
        os.path.join(common, "packed-refs"), _MAX_PACKED_REFS_BYTES
    ).splitlines():
        commit, _, called = line.partition(" ")
        if called == name:
            return commit
    return ""


def _subject(commit: str, common: str) -> str:
    """The subject of a commit; "" once git has packed the commit."""
    path = os.path.join(common, "objects", commit[:2], commit[2:])
    try:
        packed = content(path, "/", _MAX_OBJECT_BYTES).data
        whole = zlib.decompressobj().decompress(packed, _MAX_OBJECT_BYTES)
    except (OSError, Unreadable, zlib.error):
        return ""
    if not whole.startswith(b"commit "):
        return ""
    message = whole.partition(b"\n\n")[2].lstrip(b"\n")
    return message.partition(b"\n")[0].decode("utf-8", "replace").strip()


def _read_stripped(path: str) -> str:
    return _text(path, _MAX_NAME_FILE_BYTES).strip()


def _text(path: str, at_most: int) -> str:
    try:
        return content(path, "/", at_most).data.decode("utf-8")
    except (OSError, Unreadable, UnicodeDecodeError):
        return ""


def _shorten(text: str) -> str:
    return shorten(escape_marks(escape_name(text)), _MAX_SUBJECT_CHARS)


_GIT_PREFIX = "Git: "
_MAX_DIRECTORIES = 8  # directories that are named


class Environment(Struct, frozen=True, kw_only=True):
    """Facts about the place where a session works. `today` is an ISO date."""

    directory: str  # "": paths are relative to it, so its name is not needed
    more: tuple[str, ...] = ()  # other directories of the workspace
    today: str
    platform: str
    shell: str = ""
    git: Git | None = None


def environment(around: Environment) -> str:
    lines = ["Paths are relative to the folder."]
    if around.directory:
        lines = [f"You work in: {escape_name(around.directory)}"]
    if around.more:
        named = [escape_name(directory) for directory in around.more[:_MAX_DIRECTORIES]]
        unnamed = len(around.more) - len(named)
        named += [f"and {unnamed} more"] if unnamed else []
        lines.append(f"Also yours to work in: {', '.join(named)}")
    lines += [f"Today: {around.today}", f"Platform: {around.platform}"]
    if around.shell:
        lines.append(f"Shell: {around.shell}")
    if around.git:
        lines.append(_GIT_PREFIX + _state(around.git))
    return "\n".join(lines)


def choose_environment(current: str, before: str) -> str:
    """`before`, where nothing but git differs; else `current`."""
    return before if before and _without_git(current) == _without_git(before) else current


def _state(git: Git) -> str:
    branch = f"branch {git.branch}" if git.branch else "no branch checked out"
    if git.subject:
        subject = git.subject.replace('"', "'")  # it ends where it says so
        return f'{branch}, last commit {git.commit} "{subject}" when the session began'
    return f"{branch} when the session began"


def _without_git(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.startswith(_GIT_PREFIX)]
