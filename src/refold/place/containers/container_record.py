"""Stores for each workspace whether its container is kept, and which plans the user approved.

Each workspace that has a container has a record file and a lock file. A process holds the lock
as long as it uses the container. If a container runs and its lock is free, a killed process has
left it.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput
from refold.place.private_files import file_lock, make_directories, open_lock, write
from refold.safe_open import create_complete_file, read_regular

_IDENTITY_FILE = "identity"
_MAX_RECORD_BYTES = 64 * 1024
_MAX_APPROVED = 20

Use: TypeAlias = Literal["first", "another", "taken"]


class ContainerRecord(Struct, frozen=True, omit_defaults=True):
    """The stored record of a workspace's container.

    `approved` are the digests of the plans whose commands the user approved. A `kept` container
    is stopped but not removed when its session ends, and the next session starts it again.
    """

    kept: bool = False
    approved: tuple[str, ...] = ()


class ContainerRecords:
    """The records and locks in `directory`, which is created with the first record."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def identity(self) -> str:
        """The value of the label that marks all containers of this data directory.

        The first call creates and stores it.
        """
        path = self._directory / _IDENTITY_FILE
        try:
            return path.read_text(encoding="ascii")
        except FileNotFoundError:
            make_directories(self._directory)
            with suppress(FileExistsError):  # another process was first
                create_complete_file(path, os.urandom(8).hex().encode())
            return path.read_text(encoding="ascii")

    @property
    def is_used(self) -> bool:
        """Whether refold has made a container for this data directory before."""
        return (self._directory / _IDENTITY_FILE).exists()

    def read(self, name: str) -> ContainerRecord:
        """Return a workspace's record, which may be empty. Raises `BadInput` if unreadable."""
        path = self._path(name)
        try:
            data, _ = read_regular(path, _MAX_RECORD_BYTES)
            return msgspec.json.decode(data, type=ContainerRecord)
        except FileNotFoundError:
            return ContainerRecord()
        except (OSError, msgspec.DecodeError) as error:
            raise BadInput(f"{path} cannot be read: {error}; delete it") from error

    def approve(self, name: str, digest: str) -> None:
        """Record that the user approved the plan with this digest. Only the newest are kept."""
        with self._change(name) as record:
            approved = (*record.approved, digest)[-_MAX_APPROVED:]
            self._write(name, replace(record, approved=approved))

    def keeps(self, container: str, name: str) -> bool:
        """Whether `container` is the container of the workspace `name`, and is kept."""
        return container == name and self.read(name).kept

    def keep(self, name: str, *, kept: bool) -> None:
        with self._change(name) as record:
            self._write(name, replace(record, kept=kept))

    def touch(self, name: str) -> None:
        """Record that the container of the workspace `name` is used now."""
        with self._change(name) as record:
            self._write(name, record)

    def changed(self, name: str) -> float:
        """Return when the container was last used, in seconds since 1970; 0 if unknown."""
        try:
            return self._path(name).stat().st_mtime
        except OSError:
            return 0.0

    def is_in_use(self, name: str) -> bool:
        with self.lock(name) as use:
            return use != "first"

    @contextmanager
    def lock(self, name: str) -> Generator[Use]:
        """Try to lock a container during a block. Yield "first", or "taken" if it failed."""
        lock = self.take_lock(name, alone=True)
        try:
            yield lock.use
        finally:
            lock.release()

    def take_lock(self, name: str, *, alone: bool) -> "ContainerLock":
        return ContainerLock(self._directory / f"{name}.lock", alone=alone)

    @contextmanager
    def _change(self, name: str) -> Generator[ContainerRecord]:
        """Lock the record of a workspace during the block, and yield its present content."""
        make_directories(self._directory)
        with file_lock(self._path(name)):
            yield self.read(name)

    def _write(self, name: str, record: ContainerRecord) -> None:
        write(self._path(name), msgspec.json.encode(record).decode() + "\n")

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"


class ContainerLock:
    """An attempt to lock a workspace's container. It does not wait.

    `use` is "first" if this process holds the lock alone, "another" if it shares the lock with
    other processes, and "taken" if it does not hold the lock. With `alone` it does not try to
    share.
    """

    def __init__(self, path: Path, *, alone: bool) -> None:
        self._descriptor = open_lock(path)
        self.use: Use = "first" if self._try(fcntl.LOCK_EX) else "taken"
        if self.use == "taken" and not alone and self._try(fcntl.LOCK_SH):
            self.use = "another"

    def share(self) -> None:
        """Let other processes share the lock."""
        self._try(fcntl.LOCK_SH)

    def release(self) -> None:
        os.close(self._descriptor)

    def _try(self, operation: int) -> bool:
        """Try to take the lock without waiting. Return False if another process prevents it."""
        try:
            fcntl.flock(self._descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
