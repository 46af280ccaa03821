"""Has the files, git repositories and checkpoints of tests of checkpoints."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from refold.place.checkpoints import Checkpoints
from refold.place.port import Snapshots
from tests.place.ports import open_snapshots

PERSON = {
    "GIT_AUTHOR_NAME": "P", "GIT_AUTHOR_EMAIL": "p@example.org",
    "GIT_COMMITTER_NAME": "P", "GIT_COMMITTER_EMAIL": "p@example.org",
    "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def checkpoints(root: Path, *others: Path, session: str = "one") -> Checkpoints:
    """Return the checkpoints of a session in `root`, stored beside it."""
    store = root.parent / "data" / "checkpoints"
    return Checkpoints([root, *others], store, os.environ, session)


def snapshots(root: Path, *others: Path, session: str = "one") -> Snapshots:
    """Return the checkpoints of a session, by the port of the test."""
    return open_snapshots([root, *others], root.parent / "data" / "checkpoints", session)


def git(folder: Path, *arguments: str, fails: bool = False) -> str:
    """Run the person's own git, and return its output. With `fails`, it must fail."""
    done = subprocess.run(
        ("git", *arguments),
        cwd=folder,
        env={**os.environ, **PERSON},
        capture_output=True,
        text=True,
        check=False,
    )
    assert bool(done.returncode) is fails, done.stderr
    return done.stdout


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    return folder


def files(folder: Path) -> Mapping[str, object]:
    """Return the files below a folder, without its git: contents, links, execute permissions."""
    contents = dict[str, object]()
    for directory, folders, names in os.walk(os.fsencode(folder)):
        folders[:] = [item for item in folders if item != b".git"]
        for name in (
            *names,
            *(f for f in folders if os.path.islink(os.path.join(directory, f))),
        ):
            place = os.path.join(directory, name)
            key = os.fsdecode(os.path.relpath(place, os.fsencode(folder)))
            if os.path.islink(place):
                contents[key] = ("link", os.readlink(place))
            else:
                with open(place, "rb") as file:
                    contents[key] = (bool(os.stat(place).st_mode & 0o100), file.read())
    return contents


def bytes_of(folder: Path) -> Mapping[str, bytes]:
    """Return the bytes of every file of a folder, such as the person's .git."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
