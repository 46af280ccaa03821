"""Restores files to their state in a snapshot.

First all files are checked. Nothing is changed if a file differs from its last checkpoint, or
if a file that no snapshot contains is in the way. Then files are deleted and written, each
completely or not at all. A file that already has the wanted content is skipped, so an
interrupted restore can be repeated. Folders are opened without following links (`openat`).
`snapshot_repository` has the contents.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal

from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.ignore_rules import HALF_WRITTEN
from refold.place.openat import FOLDER_FLAGS, closing, open_beneath
from refold.place.snapshot_pack import BLOB_TYPE, object_name
from refold.place.snapshot_repository import ScanProgress, SnapshotRepository
from refold.values.printable_names import escape_name

_LINK_MODE, _PROGRAM_MODE, _FILE_MODE = "120000", "100755", "100644"
_MAX_SYNCED_FILES = 500  # if there are more, files are not synced to disk one by one
_MAX_NAMED_FILES = 10  # the number of files named in a message


class SnapshotFile(Struct, frozen=True):
    """A file in a snapshot: its mode in git, and the name of its content."""

    mode: str
    name: str


class RewriteStep(Struct, frozen=True):
    """The change of one file. `path` is absolute and below `root`.

    `now` is the present state of the file, and `to` its wanted state. None means that no file
    exists.
    """

    root: str
    path: str
    now: SnapshotFile | None
    to: SnapshotFile | None


class _DiskEntry(Struct, frozen=True):
    """What is at a path of the disk.

    `kind` is "kept" for a file that a snapshot can store, and "blocked" if a part of the path
    is not a folder, or if the file cannot be read.
    """

    kind: Literal["nothing", "kept", "folder", "blocked", "other"] = "nothing"
    file: SnapshotFile | None = None
    identity: tuple[int, ...] = ()  # differs if another program changes the file


class _WriteOptions(Struct, frozen=True):
    """How the files of one restore are written."""

    umask: int
    is_synced: bool  # whether each file is synced before it replaces another


def rewrite(
    repository: SnapshotRepository, steps: Sequence[RewriteStep], progress: ScanProgress
) -> int:
    """Apply all `steps`. Return how many steps were done.

    Raises `ToolFailed`, with nothing changed, if a file differs from the expected state or a
    content is lost. After a later error, such as a full disk, or if `progress` is stopped, some
    files have their old and some their wanted content.
    """
    _remove_drafts(steps)
    states = dict[str, _DiskEntry]()
    for step in steps:
        if progress.stopped:
            return 0
        states[step.path] = _current_state(step)
    _refuse_conflicts(steps, states)
    names = {step.to.name for step in steps if step.to}
    if lost := repository.lost(sorted(names)):
        raise ToolFailed(f"{lost} files of that snapshot are lost: nothing was changed.")
    todo = [step for step in steps if states[step.path].file != step.to]
    progress.total = len(todo)
    _delete_files(todo, states, progress)
    if not progress.stopped:
        _write_files(repository, todo, states, progress)
    return progress.done


def _delete_files(
    todo: Sequence[RewriteStep], states: Mapping[str, _DiskEntry], progress: ScanProgress
) -> None:
    """Delete the files of the steps after which no file exists."""
    deletions = [step for step in todo if step.to is None]
    # Files in a directory come before it, so that it is empty when its turn comes.
    for step in sorted(deletions, key=lambda step: step.path, reverse=True):
        if progress.stopped:
            return
        _remove(step, states[step.path])
        progress.add(1)


def _write_files(
    repository: SnapshotRepository,
    todo: Sequence[RewriteStep],
    states: Mapping[str, _DiskEntry],
    progress: ScanProgress,
) -> None:
    """Write the files of the steps after which a file exists."""
    options = _WriteOptions(_umask(), is_synced=len(todo) <= _MAX_SYNCED_FILES)
    writes = [(step, step.to) for step in todo if step.to is not None]
    with repository.blobs() as blobs:
        contents = blobs.read_all(to.name for _, to in writes)
        for (step, to), content in zip(writes, contents, strict=True):
            if progress.stopped:
                return
            _write_file(step, to, states[step.path], content, options)
            progress.add(1)


def _refuse_conflicts(
    steps: Sequence[RewriteStep], states: Mapping[str, _DiskEntry]
) -> None:
    """Raise `ToolFailed` if a file differs from its expected state, or something is in the way."""
    deleted = {step.path for step in steps if step.to is None}
    changed, blocked = list[str](), list[str]()
    for step in steps:
        state = states[step.path]
        is_new, is_deletion = step.now is None, step.to is None
        if state.file is not None and state.file in (step.now, step.to):
            continue  # the file is as expected, or as wanted
        if state.kind == "nothing" and (is_new or is_deletion):
            continue
        if is_new and not is_deletion:
            path = _blocking_path(step, state, deleted)
            if path is not None:
                blocked.append(path)
        elif is_deletion and state.kind in ("blocked", "folder"):
            continue  # another program has replaced the file
        else:
            changed.append(step.path)
    if changed:
        raise ToolFailed(
            f"Nothing was changed, because another program has just changed these files: "
            f"{name_list(changed)}. Try again."
        )
    if blocked:
        raise ToolFailed(
            f"Nothing was changed, because something that is in no snapshot is in the way: "
            f"{name_list(blocked)}. Move it away and try again."
        )


def _blocking_path(step: RewriteStep, state: _DiskEntry, deleted: set[str]) -> str | None:
    """Return the path of what is in the way of a restored file; None if nothing is.

    `deleted` are the paths that the restore deletes before.
    """
    if state.kind == "folder":
        # Empty directories do not count. A link to a directory is listed as a directory.
        files, links = list[str](), list[str]()
        for parent, directory_names, file_names in os.walk(step.path):
            files += (os.path.join(parent, name) for name in file_names)
            directories = (os.path.join(parent, name) for name in directory_names)
            links += filter(os.path.islink, directories)
        return next((path for path in (*files, *links) if path not in deleted), None)
    if state.kind == "blocked":  # a file or link may be in the place of a directory
        above = os.path.dirname(step.path)
        while above != step.root:
            is_directory = os.path.isdir(above) and not os.path.islink(above)
            if os.path.lexists(above) and not is_directory:
                return None if above in deleted else above
            above = os.path.dirname(above)
    return step.path


def name_list(paths: Iterable[str]) -> str:
    """Return a text with the first few paths, and the number of the others."""
    ordered = sorted(paths)
    text = ", ".join(escape_name(path) for path in ordered[:_MAX_NAMED_FILES])
    if len(ordered) > _MAX_NAMED_FILES:
        text += f" and {len(ordered) - _MAX_NAMED_FILES} more"
    return text


def _current_state(step: RewriteStep) -> _DiskEntry:
    """Return what is at the path of `step` now, with the hash of its content."""
    base_name = os.path.basename(step.path)
    try:
        with _folder(step) as parent_fd:
            status = os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                return _DiskEntry("folder")
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(base_name, dir_fd=parent_fd))
                return _DiskEntry(
                    "kept", SnapshotFile(_LINK_MODE, _blob_name(content)), _identity(status)
                )
            if not stat.S_ISREG(status.st_mode):
                return _DiskEntry("other")
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(base_name, flags, dir_fd=parent_fd)
            with open(descriptor, "rb") as file:
                content = file.read()
                status = os.fstat(descriptor)
    except FileNotFoundError:
        return _DiskEntry()
    except OSError:  # not a folder, or not readable
        return _DiskEntry("blocked")
    mode = _PROGRAM_MODE if status.st_mode & stat.S_IXUSR else _FILE_MODE
    return _DiskEntry("kept", SnapshotFile(mode, _blob_name(content)), _identity(status))


def _remove(step: RewriteStep, state: _DiskEntry) -> None:
    """Delete a file, and then the folders above it that are empty."""
    with _restore_errors(step), _folder(step) as parent_fd:
        base_name = os.path.basename(step.path)
        _check_unchanged(step, parent_fd, base_name, state)
        os.unlink(base_name, dir_fd=parent_fd)
    above = os.path.relpath(os.path.dirname(step.path), step.root)
    with suppress(OSError), closing(os.open(step.root, FOLDER_FLAGS)) as top:
        while above and above != ".":
            os.rmdir(above, dir_fd=top)  # raises an error if it is not empty
            above = os.path.dirname(above)


def _write_file(
    step: RewriteStep,
    to: SnapshotFile,
    state: _DiskEntry,
    content: bytes,
    options: _WriteOptions,
) -> None:
    """Write a file or link under another name, and rename it if nothing has changed meanwhile."""
    base_name = os.path.basename(step.path)
    with _restore_errors(step), _folder(step, make=True) as parent_fd:
        draft = f"{HALF_WRITTEN}{os.urandom(6).hex()}"
        try:
            if to.mode == _LINK_MODE:
                os.symlink(os.fsdecode(content), draft, dir_fd=parent_fd)
            else:
                bits = _permission_bits(parent_fd, base_name, to, options.umask)
                _write(parent_fd, draft, content, bits, wait=options.is_synced)
            if state.file is not None:
                _check_unchanged(step, parent_fd, base_name, state)
            else:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.rmdir(base_name, dir_fd=parent_fd)  # the folder is now empty
                _check_free(parent_fd, base_name)
            os.rename(draft, base_name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
        finally:
            with suppress(OSError):
                os.unlink(draft, dir_fd=parent_fd)


def _check_free(parent_fd: int, base_name: str) -> None:
    """Raise `FileExistsError` if there is a file at the path."""
    try:
        os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise FileExistsError(errno.EEXIST, "another program has just made such a file")


def _write(parent_fd: int, name: str, content: bytes, bits: int, *, wait: bool) -> None:
    """Create a new file. With `wait`, its content is on the disk afterwards."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    number = os.open(name, flags, 0o600, dir_fd=parent_fd)
    with open(number, "wb") as file:
        os.fchmod(number, bits)
        file.write(content)
        file.flush()
        if wait:
            os.fsync(number)


def _permission_bits(parent_fd: int, base_name: str, to: SnapshotFile, umask: int) -> int:
    """Return the mode of a restored file.

    The rights to read and write are those of the file that is there now, or of a new file. The
    snapshot decides whether the file is executable; then all who may read it may run it.
    """
    bits = 0o666 & ~umask
    with suppress(OSError):
        status = os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            bits = status.st_mode & 0o666
    if to.mode == _PROGRAM_MODE:
        read_bits = bits & 0o444
        execute_bits = read_bits >> 2
        return bits | execute_bits
    return bits


def _umask() -> int:
    """Return the process's umask, as the kernel reports it; 0o022 if it does not.

    `os.umask` would change it for all threads.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            line = next(line for line in file if line.startswith("Umask:"))
        return int(line.split()[1], 8)
    except (OSError, StopIteration, ValueError):
        return 0o022


def _check_unchanged(
    step: RewriteStep, parent_fd: int, base_name: str, state: _DiskEntry
) -> None:
    """Raise `ToolFailed` if the file was replaced or written to since `state` was read."""
    status = os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
    if _identity(status) != state.identity:
        raise ToolFailed(f"{escape_name(step.path)} was changed meanwhile. Try again.")


def _remove_drafts(steps: Sequence[RewriteStep]) -> None:
    """Delete incomplete files that a killed restore left in the folders of `steps`."""
    folders = {os.path.dirname(step.path): step for step in steps if step.to is not None}
    for step in folders.values():
        with suppress(OSError), _folder(step) as parent_fd:
            for name in os.listdir(parent_fd):
                if name.startswith(HALF_WRITTEN):
                    os.unlink(name, dir_fd=parent_fd)


@contextmanager
def _folder(step: RewriteStep, *, make: bool = False) -> Generator[int]:
    """Yield a descriptor of the folder that contains a file, without following links.

    With `make`, missing folders are created.
    """
    parent = os.path.relpath(os.path.dirname(step.path), step.root)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with closing(os.open(step.root, FOLDER_FLAGS)) as top:
        try:
            folder = open_beneath(top, parent, flags)
        except FileNotFoundError:
            if not make:
                raise
            _make_folders(top, parent)
            folder = open_beneath(top, parent, flags)
        try:
            yield folder
        finally:
            os.close(folder)


def _make_folders(top: int, path: str) -> None:
    """Create the missing folders of `path`, which is relative to the open folder `top`."""
    created = ""
    for part in path.split("/"):
        above = open_beneath(top, created or ".", FOLDER_FLAGS)
        try:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=above)
        finally:
            os.close(above)
        created = os.path.join(created, part)


@contextmanager
def _restore_errors(step: RewriteStep) -> Generator[None]:
    """Raise an `OSError` of the block as `ToolFailed` about the file of `step`."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(
            f"{escape_name(step.path)} could not be restored: {error.strerror}. What was "
            "done until then stays: fix that, and try again."
        ) from error


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Return values that change if a file is replaced or written to."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _blob_name(content: bytes) -> str:
    return object_name(BLOB_TYPE, content).hex()
