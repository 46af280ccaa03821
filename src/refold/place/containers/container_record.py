"""What refold stores about containers: which were kept, what was allowed, and who uses one.

There is a file and a lock for each workspace in a container. The lock is held as long as a process
uses its container: whatever runs without one was left by a process that was killed.
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
    """`approved` has the digests of plans whose commands the user allowed.

    A container that is `kept` stays when its session ends, and the next one starts it again.
    """

    kept: bool = False
    approved: tuple[str, ...] = ()


class ContainerRecords:
    """The records in this directory, which is created with the first one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def identity(self) -> str:
        """The label of all containers of this data directory."""
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
        """Whether a container was ever made."""
        return (self._directory / _IDENTITY_FILE).exists()

    def read(self, name: str) -> ContainerRecord:
        path = self._path(name)
        try:
            return msgspec.json.decode(
                read_regular(path, _MAX_RECORD_BYTES)[0], type=ContainerRecord
            )
        except FileNotFoundError:
            return ContainerRecord()
        except (OSError, msgspec.DecodeError) as error:
            raise BadInput(f"{path} cannot be read: {error}; delete it") from error

    def approve(self, name: str, digest: str) -> None:
        with self._change(name) as record:
            approved = (*record.approved, digest)[-_MAX_APPROVED:]
            self._write(name, replace(record, approved=approved))

    def keeps(self, container: str, name: str) -> bool:
        """Whether this is the container that is kept for the workspace of this name."""
        return container == name and self.read(name).kept

    def keep(self, name: str, *, kept: bool) -> None:
        with self._change(name) as record:
            self._write(name, replace(record, kept=kept))

    def touch(self, name: str) -> None:
        """Note that the container is used now."""
        with self._change(name) as record:
            self._write(name, record)

    def changed(self, name: str) -> float:
        """When the container was last used, in seconds since 1970; 0 if unknown."""
        try:
            return self._path(name).stat().st_mtime
        except OSError:
            return 0.0

    def is_in_use(self, name: str) -> bool:
        with self.lock(name) as use:
            return use != "first"

    @contextmanager
    def lock(self, name: str) -> Generator[Use]:
        lock = self.take_lock(name, alone=True)
        try:
            yield lock.use
        finally:
            lock.release()

    def take_lock(self, name: str, *, alone: bool) -> "ContainerLock":
        return ContainerLock(self._directory / f"{name}.lock", alone=alone)

    @contextmanager
    def _change(self, name: str) -> Generator[ContainerRecord]:
        make_directories(self._directory)
        with file_lock(self._path(name)):
            yield self.read(name)

    def _write(self, name: str, record: ContainerRecord) -> None:
        write(self._path(name), msgspec.json.encode(record).decode() + "\n")

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"


class ContainerLock:
    """The lock of a container. `use` is "first" if no other process has it, "another" if it
    is shared, and "taken" if it could not be had.
    """

    def __init__(self, path: Path, *, alone: bool) -> None:
        self._descriptor = open_lock(path)
        self.use: Use = "first" if self._try(fcntl.LOCK_EX) else "taken"
        if self.use == "taken" and not alone and self._try(fcntl.LOCK_SH):
            self.use = "another"

    def share(self) -> None:
        """Share the lock with other processes."""
        self._try(fcntl.LOCK_SH)

    def release(self) -> None:
        os.close(self._descriptor)

    def _try(self, operation: int) -> bool:
        try:
            fcntl.flock(self._descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
