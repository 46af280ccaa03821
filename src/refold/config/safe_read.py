"""Read small files of a folder that somebody else may have filled.

No link is followed, no pipe waited for, nothing large taken in. Every failure is one
sentence that names the file as a person knows it.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from refold.errors import BadInput, said_by

LARGEST = 64 * 1024  # bytes; settings are short, and a person has to read them
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def small_files(
    folder: str,
    directory: str,
    names: tuple[str, ...],
    skip: Callable[[os.stat_result], bool],
) -> dict[str, bytes]:
    """Those of `names` that are in the directory of this name, as "directory/name".

    `folder` is a real path. Raises `BadInput` for what is there and cannot be read.
    """
    found = dict[str, bytes]()
    with suppress(_Nothing):
        where = _opened(folder, None, folder)
        try:
            below = _opened(directory, where, directory)
        finally:
            os.close(where)
        try:
            for name in names:
                with suppress(_Nothing):
                    called = f"{directory}/{name}"
                    found[called] = _content(name, below, called, skip)
        finally:
            os.close(below)
    return found


def small_file(path: str) -> bytes:
    """The same for one file that a person named; there links are followed."""
    try:
        opened = os.open(path, _LOOK & ~os.O_NOFOLLOW)
    except OSError as error:
        raise _unread(path, said_by(error)) from error
    try:
        return _whole(opened, path)
    finally:
        os.close(opened)


class _Nothing(Exception):
    """There is nothing of that name."""


def _opened(name: str, where: int | None, called: str) -> int:
    try:
        return os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=where)
    except FileNotFoundError as error:
        raise _Nothing from error
    except OSError as error:
        raise _unread(called, _special(name, where) or said_by(error)) from error


def _content(
    name: str, where: int, called: str, skip: Callable[[os.stat_result], bool]
) -> bytes:
    try:
        opened = os.open(name, _LOOK, dir_fd=where)
    except FileNotFoundError as error:
        raise _Nothing from error
    except OSError as error:
        raise _unread(called, _special(name, where) or said_by(error)) from error
    try:
        if skip(os.fstat(opened)):
            raise _Nothing
        return _whole(opened, called)
    finally:
        os.close(opened)


def _whole(opened: int, called: str) -> bytes:
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        raise _unread(called, "it is no file")
    pieces, left = list[bytes](), LARGEST + 1
    try:
        while left and (piece := os.read(opened, left)):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise _unread(called, said_by(error)) from error
    if not left:
        raise _unread(called, f"it is larger than {LARGEST // 1024} KiB")
    return b"".join(pieces)


def _special(name: str, where: int | None) -> str:
    with suppress(OSError):
        mode = os.stat(name, dir_fd=where, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return "it is a link"
        if stat.S_ISSOCK(mode):
            return "it is no file"
    return ""


def _unread(called: str, why: str) -> BadInput:
    return BadInput(f"the settings in {called} cannot be read: {why}")
