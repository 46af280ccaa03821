"""Changes several files together: if one change fails, all changes are undone.

First, the new content of each file is written to a draft beside it and synced, and the present
content is compared with the expected content. Then the drafts are renamed to the files, one
after another; if a rename fails, the earlier renames are undone. A reader sees either the old
or the new content of a file, never a part. `openat` opens the directories.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256

from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.openat import (
    READ_FLAGS,
    DirectoryDescriptors,
    as_tool_errors,
    check_length,
    error_text,
    refuse_irregular,
)
from refold.place.port import FileWrite, Real

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_COPY_BYTES = 1024 * 1024
# The errors of file systems on which directories cannot be synced.
_SYNC_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


class _Step(Struct):
    """The change of one file.

    `draft` names the file with the new content, and `backup` names the file with the old
    content. Both are in the directory of the changed file. "" means that there is no draft or
    backup.
    """

    file_write: FileWrite
    name: str
    draft: str = ""
    backup: str = ""
    draft_identity: tuple[int, int] | None = None  # device and inode of the draft
    is_new: bool = False  # there is no old version
    is_applied: bool = False


def put_all(
    puts: Sequence[FileWrite], folders: DirectoryDescriptors, label: Callable[[Real], str]
) -> None:
    """Apply all changes in `puts`. If one fails, undo the others and raise `ToolFailed`.

    The message names each file whose change could not be undone. `label` returns the name of a
    file for messages.
    """
    steps = [_Step(file_write, label(file_write.real)) for file_write in puts]
    _refuse_duplicates(steps)
    new_directories = list[Real]()
    try:
        for step in steps:
            with as_tool_errors(f"{_action_word(step)} {step.name}"):
                _prepare(step, folders, new_directories)
        for step in steps:
            with as_tool_errors(f"{_action_word(step)} {step.name}"):
                _check_expected(step, folders)
        _apply(steps, folders)
    except BaseException:
        _remove_leftovers([(step, step.draft) for step in steps], folders)
        folders.remove_empty(new_directories)
        raise
    # A new file was made by a link, so its draft is still there.
    _remove_leftovers([(step, step.draft) for step in steps], folders)
    _remove_leftovers([(step, step.backup) for step in steps], folders)
    for folder in dict.fromkeys(os.path.dirname(step.file_write.real) for step in steps):
        with as_tool_errors(f"sync {label(Real(folder))}"):
            _sync(Real(folder), folders)


def _refuse_duplicates(steps: Sequence[_Step]) -> None:
    """Raise `ToolFailed` if two steps change the same file."""
    seen = set[str]()
    for step in steps:
        if step.file_write.real in seen:
            raise ToolFailed(f"{step.name} is named twice. Nothing was written.")
        seen.add(step.file_write.real)


def _action_word(step: _Step) -> str:
    return "remove" if step.file_write.content is None else "write"


def _prepare(
    step: _Step, folders: DirectoryDescriptors, new_directories: list[Real]
) -> None:
    """Write the new content of a file to a draft beside it. A deletion has no draft.

    Missing directories are created and added to `new_directories`. Raises `ToolFailed` if
    the file must not be changed.
    """
    file_write = step.file_write
    is_deletion = file_write.content is None
    if not is_deletion:
        check_length(file_write.real)
        folders.make_folder(Real(os.path.dirname(file_write.real)), new_directories)
    with folders.open_parent(file_write.real) as (parent_fd, base_name):
        before = _stat_replaceable(step, parent_fd, base_name)
        step.is_new = before is None
        if is_deletion:
            return
        mode_model = before  # the status of the file whose mode the draft gets
        if before is None and file_write.like:
            mode_model = _stat(file_write.like, folders)
        step.draft = f".refold-{os.urandom(8).hex()}"
        step.draft_identity = _write_draft(
            parent_fd, step.draft, file_write, mode_model, owner=before
        )


def _stat_replaceable(step: _Step, parent_fd: int, base_name: str) -> os.stat_result | None:
    """Return the status of the file that `step` changes; None if it does not exist.

    Raises `ToolFailed` if the file must not be replaced or deleted.
    """
    try:
        status = os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    is_deletion = step.file_write.content is None
    if is_deletion:
        refuse_irregular(status, step.name)
        return status
    return check_writable(parent_fd, base_name, step.name)


def check_writable(parent_fd: int, base_name: str, name: str) -> os.stat_result:
    """Return the status of the file `base_name` in the open directory `parent_fd`.

    Raises `ToolFailed` if it is not a regular file, has hard links or is read-only. `name` is
    its name for the message.
    """
    status = os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
    refuse_irregular(status, name)
    if status.st_nlink > 1:
        raise ToolFailed(
            f"{name} has {status.st_nlink} names (hard links); writing would "
            "separate them. Copy it to a new file first."
        )
    if not os.access(base_name, os.W_OK, dir_fd=parent_fd):
        raise ToolFailed(f"{name} is read-only.")
    return status


def _stat(real: Real, folders: DirectoryDescriptors) -> os.stat_result:
    with folders.open_parent(real) as (parent_fd, base_name):
        return os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)


def _write_draft(
    parent_fd: int,
    draft: str,
    file_write: FileWrite,
    mode_model: os.stat_result | None,
    *,
    owner: os.stat_result | None,
) -> tuple[int, int]:
    """Write the new content of a file to the new file `draft` in the directory `parent_fd`.

    Return the draft's device and inode. The draft gets the mode of the file described by
    `mode_model`, or the default mode, and, if possible, the owner of the file described by
    `owner`.
    """
    descriptor = os.open(draft, _CREATE_FLAGS, 0o666, dir_fd=parent_fd)
    with open(descriptor, "wb", buffering=0) as file:
        unwritten = memoryview(file_write.content or b"")
        while unwritten:  # one call may write only a part
            written_count = file.write(unwritten)
            unwritten = unwritten[written_count:]
        if owner and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):  # only root can keep another owner
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
        status = os.fstat(descriptor)
        mode = _new_mode(file_write, mode_model or status)
        if mode != stat.S_IMODE(status.st_mode):
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    return status.st_dev, status.st_ino


def _new_mode(file_write: FileWrite, like: os.stat_result) -> int:
    """Return the mode of the new file: that of `like`, with the wanted executable bits."""
    # Only rwx: a file written here gets no setuid or setgid bit.
    mode = stat.S_IMODE(like.st_mode) & 0o777
    if file_write.executable is None:
        return mode
    if not file_write.executable:
        return mode & ~0o111
    # A user who may read the file may run it.
    read_bits = mode & 0o444
    execute_bits = read_bits >> 2
    return mode | execute_bits


def _check_expected(step: _Step, folders: DirectoryDescriptors) -> None:
    """Raise `ToolFailed` if the content of the file is not the expected one."""
    with folders.open_parent(step.file_write.real) as (parent_fd, base_name):
        digest = _digest(parent_fd, base_name, step.name)
    expect = step.file_write.expect
    if digest != expect:
        change = "changed"
        if not expect:
            change = "came up"
        elif not digest:
            change = "went away"
        raise ToolFailed(f"{step.name} {change} in the meantime. Nothing was written.")


def _digest(parent_fd: int, base_name: str, name: str) -> str:
    """Return the SHA-256 digest of a file's content; "" if the file does not exist.

    `name` is its name for an error, which is raised for anything but a regular file.
    """
    try:
        refuse_irregular(os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False), name)
        descriptor = os.open(base_name, READ_FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        return ""
    with open(descriptor, "rb", buffering=0) as file:
        # The path may have been replaced between the check and the opening.
        refuse_irregular(os.fstat(descriptor), name)
        digest = sha256()
        while piece := file.read(_COPY_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _apply(steps: Sequence[_Step], folders: DirectoryDescriptors) -> None:
    """Apply all changes in order.

    If a change fails, undo it and all earlier changes, and raise `ToolFailed`.
    """
    for index, step in enumerate(steps):
        try:
            with folders.open_parent(step.file_write.real) as (parent_fd, base_name):
                # The last step is never undone, because no step after it can fail.
                is_last = index == len(steps) - 1
                if not step.is_new and not is_last:
                    _back_up(step, parent_fd, base_name)
                _apply_step(step, parent_fd, base_name)
        except OSError as error:
            begun_steps = steps[: index + 1]
            failures = [_undo_step(begun, folders) for begun in reversed(begun_steps)]
            message = f"Cannot {_action_word(step)} {step.name}: {error_text(error)}."
            unrestored = ", ".join(failure for failure in failures if failure)
            if unrestored:
                message += f" Not everything could be restored: {unrestored}."
            elif len(steps) > 1:
                message += " Nothing was changed."
            raise ToolFailed(message) from error


def _back_up(step: _Step, parent_fd: int, base_name: str) -> None:
    """Keep the old file under another name, so that its change can be undone."""
    backup = f".refold-{os.urandom(8).hex()}"
    try:
        os.link(
            base_name,
            backup,
            src_dir_fd=parent_fd,
            dst_dir_fd=parent_fd,
            follow_symlinks=False,
        )
    except FileNotFoundError:
        raise
    except OSError:  # some file systems have no links
        os.rename(base_name, backup, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
    step.backup = backup


def _apply_step(step: _Step, parent_fd: int, base_name: str) -> None:
    """Rename the draft to the file, or delete the file."""
    draft = step.draft
    if not draft:
        with suppress(FileNotFoundError):  # already renamed to `backup`
            os.unlink(base_name, dir_fd=parent_fd)
    elif step.is_new:
        # A link never replaces a file that another program has just created.
        try:
            os.link(
                draft,
                base_name,
                src_dir_fd=parent_fd,
                dst_dir_fd=parent_fd,
                follow_symlinks=False,
            )
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:  # some file systems have no links
            os.rename(draft, base_name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
    else:
        os.rename(draft, base_name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
    step.is_applied = True


def _undo_step(step: _Step, folders: DirectoryDescriptors) -> str:
    """Undo one change. Return "", or a clause that names the file if that failed."""
    failure = step.name
    if step.backup:
        failure += f" (what it held is in {step.backup} beside it)"
    try:
        with folders.open_parent(step.file_write.real) as (parent_fd, base_name):
            # Both are None after a deletion, if no program has made the file again.
            if step.is_applied and _identity(parent_fd, base_name) != step.draft_identity:
                return failure  # another program has changed it since
            if step.backup:
                os.rename(
                    step.backup, base_name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd
                )
                # If both are names of one file, renaming removes neither.
                with suppress(FileNotFoundError):
                    os.unlink(step.backup, dir_fd=parent_fd)
            elif step.is_applied:
                os.unlink(base_name, dir_fd=parent_fd)
    except OSError:
        return failure
    step.backup = ""
    step.is_applied = False
    return ""


def _identity(parent_fd: int, base_name: str) -> tuple[int, int] | None:
    """Return the device and the inode of a file; None if it does not exist."""
    try:
        status = os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _remove_leftovers(
    leftovers: Sequence[tuple[_Step, str]], folders: DirectoryDescriptors
) -> None:
    """Delete the drafts and backups in `leftovers`.

    Each item is a step and the name of a draft or backup of its file, or "".
    """
    for step, name in leftovers:
        if not name:
            continue
        real = step.file_write.real
        with suppress(OSError), folders.open_parent(real) as (parent_fd, _):
            os.unlink(name, dir_fd=parent_fd)


def _sync(real: Real, folders: DirectoryDescriptors) -> None:
    """Sync a directory, so that its new and renamed files survive a power failure.

    Do nothing if it cannot be opened or its file system cannot sync directories.
    """
    try:
        descriptor = folders.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENOENT):
            return  # not readable, or renamed since
        raise
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _SYNC_UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)
