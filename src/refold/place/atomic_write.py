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
    LOOK,
    DirectoryDescriptors,
    as_tool_errors,
    check_length,
    error_text,
    refuse_irregular,
)
from refold.place.port import FileWrite, Real

_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1024 * 1024
_UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # directories that cannot be


class _Step(Struct):
    """One file in progress. `draft` and `kept` are names beside it, "" for none."""

    put: FileWrite
    name: str
    draft: str = ""
    kept: str = ""
    own: tuple[int, int] | None = None  # the draft, by device and number
    new: bool = False
    done: bool = False


def put_all(
    puts: Sequence[FileWrite], folders: DirectoryDescriptors, called: Callable[[Real], str]
) -> None:
    """Do all of `puts`, or raise `ToolFailed` with nothing done, or with what stayed."""
    steps = [_Step(put, called(put.real)) for put in puts]
    _refuse_twice(steps)
    made = list[Real]()
    try:
        for each in steps:
            with as_tool_errors(f"{_doing(each)} {each.name}"):
                _prepare(each, folders, made)
        for each in steps:
            with as_tool_errors(f"{_doing(each)} {each.name}"):
                _check(each, folders)
        _go(steps, folders)
    except BaseException:
        _clear([(each, each.draft) for each in steps], folders)
        folders.unmake(made)
        raise
    left = [(each, name) for each in steps for name in (each.draft, each.kept)]
    _clear(left, folders)
    for folder in dict.fromkeys(os.path.dirname(each.put.real) for each in steps):
        with as_tool_errors(f"sync {called(Real(folder))}"):
            _sync(Real(folder), folders)


def _refuse_twice(steps: Sequence[_Step]) -> None:
    seen = set[str]()
    for each in steps:
        if each.put.real in seen:
            raise ToolFailed(f"{each.name} is named twice. Nothing was written.")
        seen.add(each.put.real)


def _doing(each: _Step) -> str:
    return "remove" if each.put.content is None else "write"


def _prepare(each: _Step, folders: DirectoryDescriptors, made: list[Real]) -> None:
    put = each.put
    if put.content is not None:
        check_length(put.real)
        folders.make(Real(os.path.dirname(put.real)), made)
    with folders.of(put.real) as (folder, last):
        before = _before(each, folder, last)
        each.new = before is None
        if put.content is not None:
            mode = before or (_about(put.like, folders) if put.like else None)
            each.draft = f".refold-{os.urandom(8).hex()}"
            each.own = _draft(folder, each.draft, put, mode, owner=before)


def _before(each: _Step, folder: int, last: str) -> os.stat_result | None:
    try:
        about = os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if each.put.content is None:
        refuse_irregular(about, each.name)
        return about
    return check_writable(folder, last, each.name)


def check_writable(folder: int, last: str, name: str) -> os.stat_result:
    """Raise where the file `last` in a directory is not to be replaced."""
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


def _about(real: Real, folders: DirectoryDescriptors) -> os.stat_result:
    with folders.of(real) as (folder, last):
        return os.stat(last, dir_fd=folder, follow_symlinks=False)


def _draft(
    folder: int,
    draft: str,
    put: FileWrite,
    like: os.stat_result | None,
    *,
    owner: os.stat_result | None,
) -> tuple[int, int]:
    number = os.open(draft, _MAKE, 0o666, dir_fd=folder)
    with open(number, "wb", buffering=0) as file:
        view = memoryview(put.content or b"")
        while view:
            view = view[file.write(view) :]
        if owner and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):  # the owner of another's file stays who he is
                os.fchown(number, owner.st_uid, owner.st_gid)
        about = os.fstat(number)
        mode = _mode(put, like or about)
        if mode != stat.S_IMODE(about.st_mode):
            os.fchmod(number, mode)
        os.fsync(number)
    return about.st_dev, about.st_ino


def _mode(put: FileWrite, like: os.stat_result) -> int:
    # Never more than rwx: what was written here runs with nobody else's rights.
    mode = stat.S_IMODE(like.st_mode) & 0o777
    if put.executable is None:
        return mode
    return mode | (mode & 0o444) >> 2 if put.executable else mode & ~0o111


def _check(each: _Step, folders: DirectoryDescriptors) -> None:
    with folders.of(each.put.real) as (folder, last):
        found = _digest(folder, last, each.name)
    expect = each.put.expect
    if found != expect:
        what = "changed" if found and expect else "came up" if found else "went away"
        raise ToolFailed(f"{each.name} {what} in the meantime. Nothing was written.")


def _digest(folder: int, last: str, name: str) -> str:
    try:
        refuse_irregular(os.stat(last, dir_fd=folder, follow_symlinks=False), name)
        number = os.open(last, LOOK, dir_fd=folder)
    except FileNotFoundError:
        return ""
    with open(number, "rb", buffering=0) as file:
        refuse_irregular(os.fstat(number), name)
        found = sha256()
        while piece := file.read(_PIECE):
            found.update(piece)
    return found.hexdigest()


def _go(steps: Sequence[_Step], folders: DirectoryDescriptors) -> None:
    for at, each in enumerate(steps):
        try:
            with folders.of(each.put.real) as (folder, last):
                if not each.new and at < len(steps) - 1:  # after the last nothing can fail
                    _keep(each, folder, last)
                _do(each, folder, last)
        except OSError as error:
            back = [_taken_back(one, folders) for one in reversed(steps[: at + 1])]
            said = f"Cannot {_doing(each)} {each.name}: {error_text(error)}."
            stayed = ", ".join(told for told in back if told)
            if stayed:
                said += f" Not everything could be restored: {stayed}."
            elif len(steps) > 1:
                said += " Nothing was changed."
            raise ToolFailed(said) from error


def _keep(each: _Step, folder: int, last: str) -> None:
    kept = f".refold-{os.urandom(8).hex()}"
    try:
        os.link(last, kept, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # some file systems have no links
        os.rename(last, kept, src_dir_fd=folder, dst_dir_fd=folder)
    each.kept = kept


def _do(each: _Step, folder: int, last: str) -> None:
    draft = each.draft
    if not draft:
        with suppress(FileNotFoundError):  # moved away to be kept
            os.unlink(last, dir_fd=folder)
    elif each.new:
        # A link never replaces: what somebody else made here just now stays.
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
    each.done = True


def _taken_back(each: _Step, folders: DirectoryDescriptors) -> str:
    """Undo one step; what to say where that cannot be."""
    where = f" (what it held is in {each.kept} beside it)" if each.kept else ""
    try:
        with folders.of(each.put.real) as (folder, last):
            if each.done and _there(folder, last) != each.own:
                return f"{each.name}{where}"  # somebody else has been here since
            if each.kept:
                os.rename(each.kept, last, src_dir_fd=folder, dst_dir_fd=folder)
                # Of two names for one file, renaming takes none away.
                with suppress(FileNotFoundError):
                    os.unlink(each.kept, dir_fd=folder)
            elif each.done:
                os.unlink(last, dir_fd=folder)
    except OSError:
        return f"{each.name}{where}"
    each.kept = ""
    each.done = False
    return ""


def _there(folder: int, last: str) -> tuple[int, int] | None:
    try:
        about = os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def _clear(left: Sequence[tuple[_Step, str]], folders: DirectoryDescriptors) -> None:
    for each, name in left:
        if name:
            with suppress(OSError), folders.of(each.put.real) as (folder, _):
                os.unlink(name, dir_fd=folder)


def _sync(real: Real, folders: DirectoryDescriptors) -> None:
    try:
        number = folders.opened(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENOENT):
            return  # not ours to read, or renamed since
        raise
    try:
        os.fsync(number)
    except OSError as error:  # not every file system syncs directories
        if error.errno not in _UNSYNCED:
            raise
    finally:
        os.close(number)
