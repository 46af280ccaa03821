"""Decides which files a checkpoint leaves out: those that git ignores, and refold's own.

This module makes the text of an exclude file for git. git itself reads the `.gitignore` files
in the folders.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence

from refold import programs

# Files in these can be generated again. They are left out in folders outside a repository.
_HEAVY_DIRECTORIES = (
    "node_modules/", ".venv/", "venv/", "__pycache__/", "target/", "dist/", ".tox/",
    ".nox/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/", ".gradle/",
    ".next/", ".nuxt/", ".parcel-cache/", ".turbo/", ".cache/", ".direnv/", ".terraform/",
    "bower_components/", "*.pyc", ".DS_Store",
)  # fmt: skip
HALF_WRITTEN = ".refold-restore-"  # the prefix of a file that is not complete yet
_MAX_IGNORE_FILE_BYTES = 1024 * 1024  # the part of such a file that is read
_GIT_CONFIG_SECONDS = 5.0  # the time limit for git to print one setting
_SPECIAL_CHARACTERS = rb"([\\*?\[\]!# ])"


class IgnoreRules:
    """Makes the exclude files of checkpoints. The files always exclude `own_directories`.

    `git` is the path of git, or "". git is called to find the user's exclude file.
    """

    def __init__(
        self, environ: Mapping[str, str], git: str, own_directories: Sequence[str]
    ) -> None:
        self._environ, self._git, self._own_directories = environ, git, own_directories
        self._cached_excludes: bytes | None = None  # None before they were read

    def rules(self, top: str, folder: str, others: Sequence[str]) -> bytes:
        """Return the content of the exclude file for a checkpoint of `folder`.

        `top` is the repository that contains `folder`; "" if none does. `others` are
        directories that have checkpoints of their own, and are excluded.
        """
        lines = [self._user_rules()]
        if top:
            lines.append(_read(os.path.join(common_git_folder(top), "info", "exclude")))
        else:
            lines.extend(os.fsencode(pattern) for pattern in _HEAVY_DIRECTORIES)
        tree = top or folder  # git takes patterns relative to this directory
        for directory in (*self._own_directories, *others):
            is_inside = directory.startswith(tree.rstrip("/") + "/")
            if is_inside and "\n" not in directory:  # a pattern is one line
                relative = os.fsencode(os.path.relpath(directory, tree))
                lines.append(b"/%s/" % re.sub(_SPECIAL_CHARACTERS, rb"\\\1", relative))
        lines.append(os.fsencode(f"{HALF_WRITTEN}*"))
        return b"\n".join(lines) + b"\n"

    def _user_rules(self) -> bytes:
        """Return the user's own ignore rules, which are read once."""
        if self._cached_excludes is None:
            self._cached_excludes = excludes_of_user(self._environ, self._git)
        return self._cached_excludes


def excludes_of_user(environ: Mapping[str, str], git: str) -> bytes:
    """Return the content of the user's exclude file; b"" if there is none.

    git calls it core.excludesFile. The program `git` prints its path; with "", the usual path
    is tried.
    """
    file = _excludes_file(environ, git) if git else ""
    return _read(file or usual_excludes_file(environ))


def _excludes_file(environ: Mapping[str, str], git: str) -> str:
    """Return the path that the setting core.excludesFile names; "" if it is not set."""
    if not environ.get("HOME", "").startswith("/"):
        return ""
    # Reading settings runs no program. Only the user's own settings are read.
    names = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "PATH")
    passed = {name: environ[name] for name in names if name in environ}
    try:
        result = programs.run(
            (git, "config", "--global", "--includes", "--type=path", "--get",
             "core.excludesFile"),
            cwd="/",
            env={**passed, "GIT_DIR": "/nonexistent", "LC_ALL": "C"},
            seconds=_GIT_CONFIG_SECONDS,
        )  # fmt: skip
    except (OSError, programs.TimedOut):
        return ""
    return os.fsdecode(result.stdout).strip("\n") if result.returncode == 0 else ""


def usual_excludes_file(environ: Mapping[str, str]) -> str:
    """Return the file with ignore rules that git uses without a setting; "" if there is none."""
    home_settings = os.path.join(environ.get("HOME", ""), ".config")
    folder = environ.get("XDG_CONFIG_HOME", "") or home_settings
    return os.path.join(folder, "git", "ignore") if folder.startswith("/") else ""


def repository_around(folder: str) -> str:
    """Return the top directory of the repository that contains `folder`; "" if none does."""
    directory = folder
    while True:
        if _looks_like_git(os.path.join(directory, ".git")):
            return directory
        above = os.path.dirname(directory)
        if above == directory:
            return ""
        directory = above


def git_folder(top: str) -> str:
    """Return the git directory of the repository whose top directory is `top`.

    It is `.git`, or the directory that the file `.git` names.
    """
    place = os.path.join(top, ".git")
    if os.path.isdir(place):
        return place
    pointer = os.fsdecode(_read(place)).strip()
    return os.path.join(top, pointer.removeprefix("gitdir: ")) if pointer else place


def common_git_folder(top: str) -> str:
    """Return the git directory that has the settings of the repository in `top`.

    For a linked worktree, it is that of the main repository.
    """
    folder = git_folder(top)
    common = os.fsdecode(_read(os.path.join(folder, "commondir"))).strip()
    return os.path.join(folder, common) if common else folder


def _looks_like_git(place: str) -> bool:
    return os.path.isfile(place) or os.path.isfile(os.path.join(place, "HEAD"))


def _read(name: str) -> bytes:
    """Return the beginning of a regular file; b"" if it cannot be read."""
    try:
        # Do not block on a pipe without a writer.
        with open(name, "rb", opener=_open_without_waiting) as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read(_MAX_IGNORE_FILE_BYTES)
    except (OSError, ValueError):
        pass
    return b""


def _open_without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)
