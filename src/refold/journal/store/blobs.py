"""Content that is too large for a line, in files named by their sha256.

A large blob that another session has, too, is stored once: it is a hard link to a file in the
directory `.shared` of all sessions. A shared file that no session uses is removed.

The module also finds the blobs to which an event refers. Its functions block on the disk:
`file` calls them in the threads of `writer_threads`.

With hard links, a session stays a directory that can be deleted, exported and copied alone. One
store for all sessions could delete a blob only after reading every journal. Small blobs are not
shared: most are results of commands that no other session has, and each link costs a sync.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from re import fullmatch

from refold.errors import JournalError
from refold.journal.events.kinds import (
    Ended,
    Event,
    RequestLogged,
    Said,
    Settled,
    VariableInjected,
    VariablesRestored,
    VariablesSaved,
)
from refold.journal.store.disk import Disk, as_journal_errors, make_directories
from refold.safe_open import check_no_links, open_checked

DIRECTORY_NAME = "blobs"
PART_SUFFIX = ".part"
SHARED_DIRECTORY_NAME = ".shared"  # in the directory of all sessions
MIN_SHARED_BYTES = 1_000_000


class BlobFiles:
    """The blobs of one session, in the directory `blobs` of the session's directory.
    `root` is the directory of all sessions; without it, nothing is shared.
    """

    def __init__(self, directory: Path, disk: Disk, root: Path | None = None) -> None:
        self._directory, self._disk = directory / DIRECTORY_NAME, disk
        self._shared = root / SHARED_DIRECTORY_NAME if root else None

    def path(self, name: str) -> Path:
        return self._directory / name

    def put(self, blob: bytes) -> str:
        """Store a blob, and return its name once it is synced.

        An existing blob is not written again.
        """
        name = sha256(blob).hexdigest()
        path = self.path(name)
        with as_journal_errors("write", path):
            created = make_directories(self._directory, self._disk)
            if not _has_content(path, name):
                self._create(path, blob)
            # An existing file is synced, too: its writer may have died before the sync.
            parents_of_created = [new.parent for new in created]
            for directory in [self._directory, *parents_of_created]:
                self._disk.sync_directory(directory)
        return name

    def _create(self, path: Path, blob: bytes) -> None:
        """Create the file of a blob. A large one is shared with other sessions."""
        shared = self._shared if len(blob) >= MIN_SHARED_BYTES else None
        if shared and _link_if_equal(shared / path.name, path):
            return
        self._write(path, blob)
        if shared:
            self._share(path, shared)

    def get(self, name: str) -> bytes:
        """Return the content of a blob. Raises `JournalError` if it is missing or was
        changed.
        """
        if not is_name(name):
            raise JournalError(f"{name!r} is not the name of a blob: that is 64 hex digits")
        path = self.path(name)
        try:
            with as_journal_errors("read", path):
                blob = path.read_bytes()
        except JournalError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise JournalError(f"the blob {path} is missing") from error.__cause__
            raise
        if sha256(blob).hexdigest() != name:
            raise JournalError(f"the blob {path} was changed after it was written")
        return blob

    def sweep(self) -> None:
        """Remove files that earlier writers of this session left unfinished."""
        names = list[str]()
        with as_journal_errors("write", self._directory), suppress(FileNotFoundError):
            check_no_links(self._directory)
            names = os.listdir(self._directory)
        for name in names:
            if name.endswith(PART_SUFFIX) and f".{os.getpid()}." not in name:
                (self._directory / name).unlink(missing_ok=True)

    def _share(self, path: Path, shared: Path) -> None:
        """Make this synced blob available to other sessions, as a hard link in the shared
        directory.

        This does nothing on a disk without hard links.
        """
        with suppress(OSError):
            check_no_links(shared)
            make_directories(shared, self._disk)
            # A shared file with this name has other content, because it was not linked.
            (shared / path.name).unlink(missing_ok=True)
            os.link(path, shared / path.name, follow_symlinks=False)
        remove_unused_blobs(shared.parent)

    def _write(self, path: Path, blob: bytes) -> None:
        """Write the blob to a temporary file, sync it, and move it to `path`."""
        part = path.with_name(
            f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}{PART_SUFFIX}"
        )
        file = self._disk.open(part, new=True)
        try:
            try:
                self._disk.write(file, blob, offset=0)
                self._disk.sync(file)
            finally:
                self._disk.close(file)
            self._disk.rename(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _link_if_equal(shared: Path, path: Path) -> bool:
    """Make `path` a link to the shared file. Return False if that file has other content."""
    with suppress(OSError):
        if _has_content(shared, path.name):
            path.unlink(missing_ok=True)
            os.link(shared, path, follow_symlinks=False)
            return True
    return False


def remove_unused_blobs(root: Path) -> None:
    """Remove the shared blobs that no session below `root` uses. It follows no link."""
    with suppress(OSError):
        flags = os.O_RDONLY | os.O_DIRECTORY
        directory = open_checked(root / SHARED_DIRECTORY_NAME, flags)
        try:
            for name in filter(is_name, os.listdir(directory)):
                # A blob of a session has another link, in the directory of that session.
                if os.lstat(name, dir_fd=directory).st_nlink == 1:
                    os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)


def is_name(text: str) -> bool:
    return fullmatch(r"[0-9a-f]{64}", text) is not None


def _has_content(path: Path, name: str) -> bool:
    """Whether `path` is a regular file whose content has the hash `name`."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        number = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return False
        raise
    with open(number, "rb") as file:
        is_regular = stat.S_ISREG(os.fstat(number).st_mode)
        return is_regular and file_digest(file, "sha256").hexdigest() == name


_MASKED_EVENTS = (Said, Ended, RequestLogged, Settled)
_RAW_EVENTS = (VariableInjected, VariablesSaved, VariablesRestored)
NAMING_KINDS = frozenset(kind.__name__ for kind in (*_MASKED_EVENTS, *_RAW_EVENTS))


def blobs_of(event: Event) -> Iterator[str]:
    """Yield the names of the blobs to which an event refers."""
    yield from blobs_to_share(event)
    yield from variable_blobs_of(event)


def blobs_to_share(event: Event) -> Iterator[str]:
    """Yield the blobs that an export contains: masked content that the model or the user
    saw.
    """
    match event:
        case Said(images=images):
            yield from (image.blob for image in images)
        case Ended(full_blob=full_blob_name, images=images):
            yield from filter(None, (full_blob_name, *(image.blob for image in images)))
        case Settled(full_blob=full_blob_name) if full_blob_name:
            yield full_blob_name
        case RequestLogged(_, request, answer):
            yield from filter(None, (request, answer))
        case _:
            return


def variable_blobs_of(event: Event) -> Iterator[str]:
    """Yield the blobs of Python variables, which are never exported or imported.

    They are not masked, because masking would change the values.
    """
    match event:
        case VariableInjected(blob=blob, files_blob=list_blob):
            yield from filter(None, (blob, list_blob))
        case VariablesSaved() | VariablesRestored():
            yield from (event.blob, *event.parts)
        case _:
            return
