"""A file that somebody asked for: written whole under its name, or not at all."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from refold.errors import BadInput, RefoldError


def check_free(path: Path, *, force: bool) -> None:
    """Raises `BadInput` where something is there that must not be lost."""
    if path.is_dir():
        raise BadInput(f"{path} is a directory: give the name of a file in it")
    if not force and os.path.lexists(path) and not _is_device(path):
        raise BadInput(f"{path} is there already: give another name, or --force")


def save(path: Path, pieces: Iterable[bytes], *, force: bool = False) -> int:
    """Write them; gives how many bytes. Only its owner can read what is made here.

    Raises `BadInput` where the file is there and `force` is not given.
    """
    check_free(path, force=force)
    try:
        if _is_device(path):  # or a pipe with a name: nothing to be replaced
            return _into(path, os.O_WRONLY | os.O_CLOEXEC, pieces)
        return _whole(path, pieces, force=force)
    except FileExistsError as error:
        raise BadInput(f"{path} is there already: give another name, or --force") from error
    except OSError as error:
        raise RefoldError(f"cannot write {path}: {error.strerror}") from error


def _whole(path: Path, pieces: Iterable[bytes], *, force: bool) -> int:
    aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        size = _into(aside, flags, pieces)
        if force:
            aside.replace(path)
        else:
            _named(aside, path)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
    return size


def _into(path: Path, flags: int, pieces: Iterable[bytes]) -> int:
    size = 0
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        for piece in pieces:
            size += file.write(piece)
        file.flush()
        with suppress(OSError):  # a pipe
            os.fsync(file.fileno())
    return size


def _named(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)  # unlike a rename, this fails where it is there by now
    except FileExistsError:
        raise
    except OSError:  # a disk that knows no links
        check_free(path, force=False)
        aside.rename(path)


def _is_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)
