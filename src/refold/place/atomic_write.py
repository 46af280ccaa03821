"""Changes several files at once: replaced, created and deleted together, or not at all.

Every new version is written beside its file and synced, and all files are compared with what was
expected, before the first is changed. Then one rename follows the other; if one fails, those before
it are undone. A reader sees each file whole, old or new. `openat` opens the directories.
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
# Directories that cannot be.
_SYNC_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


class _Step(Struct):
    """One file to be changed. `draft` names its new version, `kept` its old one.

    Both are in the directory of the file; "" for none.
    """

    put: FileWrite
    name: str
    draft: str = ""
    kept: str = ""
    own: tuple[int, int] | None = None  # the draft, by device and number
    new: bool = False
    done: bool = False


def put_all(
    puts: Sequence[FileWrite], folders: DirectoryDescriptors, label: Callable[[Real], str]
) -> None:
    """Do all of `puts`, or undo them and raise `ToolFailed`, with what could not be undone."""
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
    left = [(step, name) for step in steps for name in (step.draft, step.kept)]
    _remove_leftovers(left, folders)
    for folder in dict.fromkeys(os.path.dirname(step.put.real) for step in steps):
        with as_tool_errors(f"sync {label(Real(folder))}"):
            _sync(Real(folder), folders)


def _refuse_duplicates(steps: Sequence[_Step]) -> None:
    seen = set[str]()
    for step in steps:
        if step.put.real in seen:
            raise ToolFailed(f"{step.name} is named twice. Nothing was written.")
        seen.add(step.put.real)


def _action_word(step: _Step) -> str:
    return "remove" if step.put.content is None else "write"


def _prepare(
    step: _Step, folders: DirectoryDescriptors, new_directories: list[Real]
) -> None:
    file_write = step.put
    if file_write.content is not None:
        check_length(file_write.real)
        folders.make_folder(Real(os.path.dirname(file_write.real)), new_directories)
    with folders.open_parent(file_write.real) as (folder, last):
        before = _stat_replaceable(step, folder, last)
        step.new = before is None
        if file_write.content is not None:
            mode = before or (_stat(file_write.like, folders) if file_write.like else None)
            step.draft = f".refold-{os.urandom(8).hex()}"
            step.own = _write_draft(folder, step.draft, file_write, mode, owner=before)


def _stat_replaceable(step: _Step, folder: int, last: str) -> os.stat_result | None:
    try:
        about = os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if step.put.content is None:
        refuse_irregular(about, step.name)
        return about
    return check_writable(folder, last, step.name)


def check_writable(folder: int, last: str, name: str) -> os.stat_result:
    """Raise if the file `last` in a directory must not be replaced."""
    about = os.stat(last, dir_fd=folder, follow_symlinks=False)
    refuse_irregular(about, name)
    if about.st_nlink > 1:
        raise ToolFailed(
            f"{name} has {about.st_nlink} names (hard links); writing would "
            "separate them. Copy it to a new file first."
        )
    if not os.access(last, os.W_OK, dir_fd=folder):
        raise ToolFailed(f"{name} is read-only.")
    return about


def _stat(real: Real, folders: DirectoryDescriptors) -> os.stat_result:
    with folders.open_parent(real) as (folder, last):
        return os.stat(last, dir_fd=folder, follow_symlinks=False)


def _write_draft(
    folder: int,
    draft: str,
    file_write: FileWrite,
    like: os.stat_result | None,
    *,
    owner: os.stat_result | None,
) -> tuple[int, int]:
    number = os.open(draft, _CREATE_FLAGS, 0o666, dir_fd=folder)
    with open(number, "wb", buffering=0) as file:
        view = memoryview(file_write.content or b"")
        while view:
            view = view[file.write(view) :]
        if owner and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):  # only root can keep another owner
                os.fchown(number, owner.st_uid, owner.st_gid)
        about = os.fstat(number)
        mode = _new_mode(file_write, like or about)
        if mode != stat.S_IMODE(about.st_mode):
            os.fchmod(number, mode)
        os.fsync(number)
    return about.st_dev, about.st_ino


def _new_mode(file_write: FileWrite, like: os.stat_result) -> int:
    # Only rwx: a file written here gets no setuid or setgid bit.
    mode = stat.S_IMODE(like.st_mode) & 0o777
    if file_write.executable is None:
        return mode
    return mode | (mode & 0o444) >> 2 if file_write.executable else mode & ~0o111


def _check_expected(step: _Step, folders: DirectoryDescriptors) -> None:
    with folders.open_parent(step.put.real) as (folder, last):
        digest = _digest(folder, last, step.name)
    expect = step.put.expect
    if digest != expect:
        change = "changed" if digest and expect else "came up" if digest else "went away"
        raise ToolFailed(f"{step.name} {change} in the meantime. Nothing was written.")


def _digest(folder: int, last: str, name: str) -> str:
    try:
        refuse_irregular(os.stat(last, dir_fd=folder, follow_symlinks=False), name)
        number = os.open(last, READ_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return ""
    with open(number, "rb", buffering=0) as file:
        refuse_irregular(os.fstat(number), name)
        digest = sha256()
        while piece := file.read(_COPY_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _apply(steps: Sequence[_Step], folders: DirectoryDescriptors) -> None:
    for index, step in enumerate(steps):
        try:
            with folders.open_parent(step.put.real) as (folder, last):
                # After the last nothing can fail.
                if not step.new and index < len(steps) - 1:
                    _back_up(step, folder, last)
                _apply_step(step, folder, last)
        except OSError as error:
            back = [
                _undo_step(undone_step, folders)
                for undone_step in reversed(steps[: index + 1])
            ]
            message = f"Cannot {_action_word(step)} {step.name}: {error_text(error)}."
            stayed = ", ".join(name for name in back if name)
            if stayed:
                message += f" Not everything could be restored: {stayed}."
            elif len(steps) > 1:
                message += " Nothing was changed."
            raise ToolFailed(message) from error


def _back_up(step: _Step, folder: int, last: str) -> None:
    backup = f".refold-{os.urandom(8).hex()}"
    try:
        os.link(last, backup, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # some file systems have no links
        os.rename(last, backup, src_dir_fd=folder, dst_dir_fd=folder)
    step.kept = backup


def _apply_step(step: _Step, folder: int, last: str) -> None:
    draft = step.draft
    if not draft:
        with suppress(FileNotFoundError):  # already moved to `kept`
            os.unlink(last, dir_fd=folder)
    elif step.new:
        # A link never replaces a file that another program has just created.
        try:
            os.link(
                draft, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False
            )
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:  # some file systems have no links
            os.rename(draft, last, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.rename(draft, last, src_dir_fd=folder, dst_dir_fd=folder)
    step.done = True


def _undo_step(step: _Step, folders: DirectoryDescriptors) -> str:
    """Undo one step. Return "", or a clause about what could not be undone."""
    backup_note = f" (what it held is in {step.kept} beside it)" if step.kept else ""
    try:
        with folders.open_parent(step.put.real) as (folder, last):
            if step.done and _identity(folder, last) != step.own:
                return f"{step.name}{backup_note}"  # another program has changed it since
            if step.kept:
                os.rename(step.kept, last, src_dir_fd=folder, dst_dir_fd=folder)
                # If both are names of one file, renaming removes neither.
                with suppress(FileNotFoundError):
                    os.unlink(step.kept, dir_fd=folder)
            elif step.done:
                os.unlink(last, dir_fd=folder)
    except OSError:
        return f"{step.name}{backup_note}"
    step.kept = ""
    step.done = False
    return ""


def _identity(folder: int, last: str) -> tuple[int, int] | None:
    try:
        about = os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def _remove_leftovers(
    leftovers: Sequence[tuple[_Step, str]], folders: DirectoryDescriptors
) -> None:
    for step, name in leftovers:
        if name:
            with suppress(OSError), folders.open_parent(step.put.real) as (folder, _):
                os.unlink(name, dir_fd=folder)


def _sync(real: Real, folders: DirectoryDescriptors) -> None:
    try:
        number = folders.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENOENT):
            return  # not readable, or renamed since
        raise
    try:
        os.fsync(number)
    except OSError as error:  # not every file system syncs directories
        if error.errno not in _SYNC_UNSUPPORTED:
            raise
    finally:
        os.close(number)
