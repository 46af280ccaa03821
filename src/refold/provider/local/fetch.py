"""Bring a model here: ask each source in turn, check the hash, give it its name.

What has come stays in a partial file, so a download that was broken off goes on
where it stopped, from whichever source answers then. A file whose hash is wrong
is not kept, and neither is one the disk has no room for.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path

from msgspec import Struct

from refold.errors import BadInput, Unreachable
from refold.provider.local.models import Model
from refold.provider.local.shelf import ModelSource, Shelf
from refold.provider.local.sources import Broken, Source

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SPARE = 50_000_000  # bytes to leave free


class DownloadProgress(Struct, frozen=True):
    """`done` of `total` bytes are here; `trying` and `failed` say what is going on."""

    source: str
    done: int
    total: int
    failed: str = ""


def fetch(
    model: Model,
    sources: Sequence[Source],
    shelf: Shelf,
    tell: Callable[[DownloadProgress], None],
    free: Callable[[Path], int] = lambda where: shutil.disk_usage(where).free,
) -> ModelSource:
    """Install `model` from the first source that has it.

    Raises `Unreachable` when none has, saying what each answered, and `BadInput`
    when there is no room for it.
    """
    try:
        shelf.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"models cannot be kept in {shelf.directory}: {error.strerror}; "
            "set REFOLD_HOME to a directory that can be written"
        ) from error
    failures: list[str] = []
    with _alone(shelf.partial(model), model) as partial:
        for source in sources:
            _check_room(model, source, shelf, free)
            try:
                _fill(partial, source, model, tell)
                _check_hash(partial, model)
            except _Full as error:
                shelf.partial(model).unlink()
                raise BadInput(
                    f"the disk of {shelf.directory} is full: {model.name} needs "
                    f"{model.size:,} bytes; nothing was kept"
                ) from error
            except (Broken, OSError) as error:
                failures.append(f"{source.name}: {_reason(error)}")
                done = os.fstat(partial).st_size
                tell(DownloadProgress(source.name, done, model.size, failed=_reason(error)))
                continue
            return _settle(partial, source, model, shelf)
    raise Unreachable(
        f"{model.name} could not be fetched. Tried {'; '.join(failures)}. Get the file "
        f"{model.file} some other way and give it with --from FILE"
    )


class _Full(Exception):
    """The disk takes no more: another source would not help."""


@contextmanager
def _alone(path: Path, model: Model) -> Generator[int]:
    """The partial file, open, with nobody else filling it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"another refold is fetching {model.name} right now") from error
        try:
            yield file
        finally:
            if os.fstat(file).st_size == 0:
                path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _check_room(
    model: Model, source: Source, shelf: Shelf, free: Callable[[Path], int]
) -> None:
    need = model.size - shelf.fetched(model) + source.extra + _SPARE
    room = free(shelf.directory)
    if room < need:
        raise BadInput(
            f"{model.name} needs {need:,} bytes of disk and {shelf.directory} has "
            f"{room:,}: make room, or set REFOLD_HOME to a bigger disk"
        )


def _fill(
    partial: int, source: Source, model: Model, tell: Callable[[DownloadProgress], None]
) -> None:
    done = os.fstat(partial).st_size
    if done > model.size:  # not ours, whatever it is
        os.ftruncate(partial, 0)
        done = 0
    tell(DownloadProgress(source.name, done, model.size))
    if done == model.size:
        return
    for piece in source.pieces(model, done):
        if done + len(piece) > model.size:
            raise Broken(f"it sends more than {model.size:,} bytes")
        _write(partial, piece, done)
        done += len(piece)
        tell(DownloadProgress(source.name, done, model.size))
    if done < model.size:
        raise Broken(f"it broke off after {done:,} of {model.size:,} bytes")


def _write(partial: int, piece: bytes, at: int) -> None:
    written = 0
    try:
        while written < len(piece):
            written += os.pwrite(partial, piece[written:], at + written)
    except OSError as error:
        if error.errno in _FULL:
            raise _Full from error
        raise


def _check_hash(partial: int, model: Model) -> None:
    os.lseek(partial, 0, os.SEEK_SET)
    with open(partial, "rb", closefd=False) as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != model.sha256:
        os.ftruncate(partial, 0)
        raise Broken(
            f"what it sent is not {model.name}: its sha256 is {found} and should be "
            f"{model.sha256}; nothing was kept"
        )


def _settle(partial: int, source: Source, model: Model, shelf: Shelf) -> ModelSource:
    os.fsync(partial)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    origin = ModelSource(source.name, now, model.sha256)
    shelf.note(model, origin)
    os.replace(shelf.partial(model), shelf.place(model))
    directory = os.open(shelf.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return origin


def _reason(error: Exception) -> str:
    match error:
        case OSError() if isinstance(cause := getattr(error, "reason", None), OSError):
            return cause.strerror or str(cause)
        case OSError(strerror=str(why)) if why:
            return why
        case _:
            return str(error) or type(error).__name__
