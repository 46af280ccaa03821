"""Measures how long it takes to store the files of a session in a bucket and to restore them.

Usage: python -m bench.following_files [--megabytes 100] [--files 5000]

It prints the times of the first upload, of a later upload after a small change, and of restoring
by a worker that has none of the files. A checkpoint is made before each upload; as every turn makes
one in any case, its time is printed separately. The bucket is on this machine.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio

from refold.app.workspace import checkpoints
from refold.cluster.bucket import TenantObjects, tenant_objects
from refold.cluster.workspace_packs import StoredFiles, WorkspacePacks
from refold.config.paths import Paths
from refold.place.checkpoints import Checkpoints
from tests.cluster.servers import s3_server

_SESSION = "20260101-000000-aaaa"
_WORDS = 4_000  # different words; text of them compresses about as well as source code
_FILES_OF_A_FOLDER = 100


class _Worker:
    """A worker with a home of its own. `work` is the directory of the session."""

    def __init__(self, directory: Path, objects: TenantObjects) -> None:
        self.work, self._home = directory / "work", directory / "home"
        self.work.mkdir(parents=True)
        self._home.mkdir()
        self.packs = WorkspacePacks(objects, _SESSION, self._open)

    def _open(self, directory: Path, session: str) -> Checkpoints:
        paths = Paths(self._home, self._home, self._home)
        return checkpoints((directory,), paths, os.environ, session)

    def take_checkpoint(self, seq: int) -> StoredFiles:
        snapshot = anyio.run(self._open(self.work, _SESSION).take)
        return StoredFiles(1, seq, snapshot.trees)


@contextmanager
def _timed(name: str) -> Generator[None]:
    start = time.monotonic()
    yield
    print(f"{name:30} {time.monotonic() - start:6.1f} s", flush=True)


def _write_repository(directory: Path, files: int, size: int) -> None:
    choose = random.Random(1)
    words = [f"{choose.getrandbits(40):x}"[: choose.randint(2, 10)] for _ in range(_WORDS)]
    for number in range(files):
        folder = directory / f"part-{number // _FILES_OF_A_FOLDER}"
        folder.mkdir(exist_ok=True)
        text = ""
        while len(text) < size // files:
            text += " ".join(choose.choices(words, k=2_000)) + "\n"
        (folder / f"module-{number}.py").write_text(text[: size // files])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--files", type=int, default=5_000)
    options = parser.parse_args()
    with s3_server() as s3, tempfile.TemporaryDirectory() as name:
        os.environ.update(s3.variables)
        objects = tenant_objects("s3://refold/bench", "default", os.environ)
        objects.check()
        first, second = (_Worker(Path(name, part), objects) for part in ("a", "b"))
        _write_repository(first.work, options.files, options.megabytes * 1_000_000)
        with _timed("first checkpoint"):
            files = first.take_checkpoint(1)
        with _timed("first upload"):
            stored = first.packs.push(first.work, None, files)
        sent = sum(item.size for item in objects.list(_SESSION))
        print(f"{'sent':30} {sent / 1e6:6.1f} MB")
        (first.work / "part-0" / "module-0.py").write_text("changed\n")
        with _timed("later checkpoint"):
            files = first.take_checkpoint(2)
        with _timed("later upload"):
            first.packs.push(first.work, stored, files)
        later = sum(item.size for item in objects.list(_SESSION)) - sent
        print(f"{'sent':30} {later / 1e3:6.1f} kB")
        newest = second.packs.newest()
        assert newest is not None
        with _timed("restoring on another worker"):
            count = second.packs.restore(newest, second.work)
        print(f"{count} files restored; load {os.getloadavg()[0]:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
