"""What a checkpoint leaves out: files that git ignores, and refold's own.

It makes the text of an exclude file, and finds the rules that apply to a folder. git itself reads
the `.gitignore` files in the folders.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence

from refold import programs

# Where no repository says what can be made again, these are known for it.
_HEAVY = (
    "node_modules/", ".venv/", "venv/", "__pycache__/", "target/", "dist/", ".tox/",
    ".nox/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/", ".gradle/",
    ".next/", ".nuxt/", ".parcel-cache/", ".turbo/", ".cache/", ".direnv/", ".terraform/",
    "bower_components/", "*.pyc", ".DS_Store",
)  # fmt: skip
HALF_WRITTEN = ".refold-restore-"  # how the name of a file begins that is not whole yet
_LONGEST = 1024 * 1024  # bytes of such a file that are read
_SECONDS = 5.0  # for git to say one setting
_SPECIAL = rb"([\\*?\[\]!# ])"


class IgnoreRules:
    """`ours` are directories of our own, wherever they are."""

    def __init__(self, environ: Mapping[str, str], git: str, ours: Sequence[str]) -> None:
        self._environ, self._git, self._ours = environ, git, ours
        self._everywhere: bytes | None = None

    def rules(self, top: str, folder: str, others: Sequence[str]) -> bytes:
        """The exclude file for `folder`, in the repository `top` ("": in none).

        `others` are roots with snapshots of their own.
        """
        lines = [self._of_person()]
        if top:
            lines.append(_read(os.path.join(shared_git_folder(top), "info", "exclude")))
        else:
            lines.extend(os.fsencode(each) for each in _HEAVY)
        tree = top or folder
        lines += [
            os.fsencode("/")
            + re.sub(_SPECIAL, rb"\\\1", os.fsencode(os.path.relpath(each, tree)))
            + b"/"
            for each in (*self._ours, *others)
            if each.startswith(tree.rstrip("/") + "/") and "\n" not in each
        ]
        lines.append(os.fsencode(f"{HALF_WRITTEN}*"))
        return b"\n".join(lines) + b"\n"

    def _of_person(self) -> bytes:
        if self._everywhere is None:
            self._everywhere = excludes_of_user(self._environ, self._git)
        return self._everywhere


def excludes_of_user(environ: Mapping[str, str], git: str) -> bytes:
    """The exclude file that holds in all repositories of this user (core.excludesFile).

    `git`: the program, which says where the file is; "" if there is none.
    """
    return _read((git and _named(environ, git)) or _usual(environ))


def _named(environ: Mapping[str, str], git: str) -> str:
    if not environ.get("HOME", "").startswith("/"):
        return ""
    # Reading settings runs nothing. Only the user's own are asked for.
    names = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "PATH")
    passed = {name: environ[name] for name in names if name in environ}
    try:
        done = programs.run(
            (git, "config", "--global", "--includes", "--type=path", "--get",
             "core.excludesFile"),
            cwd="/",
            env={**passed, "GIT_DIR": "/nonexistent", "LC_ALL": "C"},
            seconds=_SECONDS,
        )  # fmt: skip
    except (OSError, programs.TimedOut):
        return ""
    return os.fsdecode(done.stdout).strip("\n") if done.returncode == 0 else ""


def _usual(environ: Mapping[str, str]) -> str:
    folder = environ.get("XDG_CONFIG_HOME", "")
    folder = folder or os.path.join(environ.get("HOME", ""), ".config")
    return os.path.join(folder, "git", "ignore") if folder.startswith("/") else ""


def repository_around(folder: str) -> str:
    """The directory of the repository that `folder` lies in, or "" if in none."""
    here = folder
    while True:
        if _looks_like_git(os.path.join(here, ".git")):
            return here
        above = os.path.dirname(here)
        if above == here:
            return ""
        here = above


def git_folder(top: str) -> str:
    """Where the repository in `top` keeps its things: in .git, or where that points to."""
    place = os.path.join(top, ".git")
    if os.path.isdir(place):
        return place
    said = os.fsdecode(_read(place)).strip()
    return os.path.join(top, said.removeprefix("gitdir: ")) if said else place


def shared_git_folder(top: str) -> str:
    """The same, but for a second work tree that of the first."""
    found = git_folder(top)
    common = os.fsdecode(_read(os.path.join(found, "commondir"))).strip()
    return os.path.join(found, common) if common else found


def _looks_like_git(place: str) -> bool:
    return os.path.isfile(place) or os.path.isfile(os.path.join(place, "HEAD"))


def _read(name: str) -> bytes:
    """The beginning of a regular file; nothing where there is none."""
    try:
        # Not waiting for a pipe that nobody writes to.
        with open(name, "rb", opener=_opener) as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read(_LONGEST)
    except (OSError, ValueError):
        pass
    return b""


def _opener(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)
