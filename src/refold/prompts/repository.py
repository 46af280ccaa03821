"""Reads the root, branch and last commit of a repository from its files, without running git.

Running git would not be safe: it runs programs that the settings of a repository name. The
files are not trusted, either: if their content is unexpected, a value counts as unknown.
"""

import os
import re
import zlib

from msgspec import Struct

from refold.prompts.read_text import Unreadable, content
from refold.values.printable_names import escape_name, shorten
from refold.values.text import escape_marks

_MAX_NAME_FILE_BYTES = 4096  # of a file with one name
_MAX_PACKED_REFS_BYTES = 256 * 1024  # of the list of all branches
_MAX_OBJECT_BYTES = 64 * 1024  # of a commit, in its stored form, and unpacked
_SHORT_HASH_CHARS = 8
_MAX_SUBJECT_CHARS = 72  # of a branch, and of the subject of a commit
_HASH_PATTERN = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"


class Git(Struct, frozen=True):
    """The branch and last commit of a repository. Unknown values are ""."""

    branch: str = ""
    commit: str = ""  # the beginning of its hash
    subject: str = ""  # the subject of the last commit


def root_of(directory: str) -> str:
    """Return the real path of the repository that contains `directory`.

    Return the real path of `directory` itself if it is in none.
    """
    real = folder = os.path.realpath(directory)
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return real
        folder = above
    return folder


def folder_chain(directory: str, root: str) -> tuple[str, ...]:
    """Return the folders from `root` down to `directory`. Both must be real paths."""
    folders = [directory]
    while folders[-1] != root:
        above = os.path.dirname(folders[-1])
        if above == folders[-1]:  # this is "/"
            break
        folders.append(above)
    return tuple(reversed(folders))


def git_state(root: str) -> Git | None:
    """Return the branch and last commit of the repository whose root is `root`.

    Return None if it is not a repository, or cannot be read.
    """
    head = _head(root)
    if head is None:
        return None
    name, commit, common = head
    branch = _shorten(name.removeprefix("refs/heads/"))
    if not commit:
        return Git(branch)
    subject = _shorten(_subject(commit, common))
    return Git(branch, commit[:_SHORT_HASH_CHARS], subject)


def head_commit(root: str) -> str:
    """Return the hash of the commit that is checked out; "" if it is unknown or none exists."""
    head = _head(root)
    if head is None:
        return ""
    _, commit, _ = head
    return commit


def _head(root: str) -> tuple[str, str, str] | None:
    """Return the ref of the branch, the hash of its commit, and the common git directory.

    The ref is "" if no branch is checked out, and the hash "" if it is unknown. Return None if
    `root` has no repository that can be read.
    """
    place = _git_directory(os.path.join(root, ".git"), root)
    head = _read_stripped(os.path.join(place, "HEAD")) if place else ""
    if not head:
        return None
    name = head.removeprefix("ref: ") if head.startswith("ref: ") else ""
    if name and not _is_branch(name):
        return None
    common = _common_directory(place)
    commit = _commit(name, place, common) if name else head
    if not re.fullmatch(_HASH_PATTERN, commit):
        commit = ""
    return name, commit, common


def _git_directory(dot_git: str, root: str) -> str:
    """Return `dot_git` if it is a directory, or the path that the file `dot_git` contains.

    A relative path starts from `root`. Return "" if there is no git directory.
    """
    if os.path.isdir(dot_git):
        return dot_git
    words = _read_stripped(dot_git)
    if not words.startswith("gitdir: "):
        return ""
    return os.path.join(root, words.removeprefix("gitdir: "))


def _common_directory(place: str) -> str:
    """Return the git directory that all working trees of the repository share.

    `place` is the git directory of one working tree.
    """
    path = _read_stripped(os.path.join(place, "commondir"))
    return os.path.join(place, path) if path else place


def _is_branch(name: str) -> bool:
    if not name.startswith("refs/heads/") or ".." in name:
        return False
    if any(letter.isspace() or not letter.isprintable() for letter in name):
        return False
    # git writes this name if the branches are stored in another format (reftable).
    return not name.endswith("/.invalid")


def _commit(name: str, place: str, common: str) -> str:
    """Return the hash to which the ref `name` points, or "" if it is unknown.

    `place` is the git directory of the working tree, and `common` that of the repository.
    """
    for folder in (place, common):
        if commit_hash := _read_stripped(os.path.join(folder, name)):
            return commit_hash
    packed_refs = _text(os.path.join(common, "packed-refs"), _MAX_PACKED_REFS_BYTES)
    for line in packed_refs.splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return commit
    return ""


def _subject(commit: str, common: str) -> str:
    """Return the first line of a commit's message; "" if git has packed the commit."""
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
    """Return up to `at_most` bytes of a file as text; "" if it cannot be read."""
    try:
        return content(path, "/", at_most).data.decode("utf-8")
    except (OSError, Unreadable, UnicodeDecodeError):
        return ""


def _shorten(text: str) -> str:
    return shorten(escape_marks(escape_name(text)), _MAX_SUBJECT_CHARS)


_GIT_PREFIX = "Git: "
_MAX_DIRECTORIES = 8  # that are named


class Environment(Struct, frozen=True, kw_only=True):
    """Facts about the directory of a session, for the system prompt. `today` is an ISO date."""

    directory: str  # "": paths are relative to it, so its name is not needed
    more: tuple[str, ...] = ()  # other directories of the workspace
    today: str
    platform: str
    shell: str = ""
    git: Git | None = None


def environment(facts: Environment) -> str:
    """Return the facts as lines for the system prompt."""
    lines = ["Paths are relative to the folder."]
    if facts.directory:
        lines = [f"You work in: {escape_name(facts.directory)}"]
    if facts.more:
        named = [escape_name(directory) for directory in facts.more[:_MAX_DIRECTORIES]]
        unnamed = len(facts.more) - len(named)
        if unnamed:
            named.append(f"and {unnamed} more")
        lines.append(f"Also yours to work in: {', '.join(named)}")
    lines += [f"Today: {facts.today}", f"Platform: {facts.platform}"]
    if facts.shell:
        lines.append(f"Shell: {facts.shell}")
    if facts.git:
        lines.append(_GIT_PREFIX + _state(facts.git))
    return "\n".join(lines)


def choose_environment(current: str, before: str) -> str:
    """Return `before` if at most its line about git differs, and otherwise `current`.

    So a commit does not change the system prompt, and prompt caches stay valid.
    """
    if before and _without_git(current) == _without_git(before):
        return before
    return current


def _state(git: Git) -> str:
    """Return the branch and the last commit in words."""
    branch = f"branch {git.branch}" if git.branch else "no branch checked out"
    if git.subject:
        # The subject is printed between double quotes.
        subject = git.subject.replace('"', "'")
        return f'{branch}, last commit {git.commit} "{subject}" when the session began'
    return f"{branch} when the session began"


def _without_git(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.startswith(_GIT_PREFIX)]
