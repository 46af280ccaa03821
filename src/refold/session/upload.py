"""Puts a file of the user into the workspace: recorded, with checkpoints around it.

`place` writes the file, whole or not at all. A name that exists is taken only where the user said
which file is replaced. `session.rewind` takes an upload back together with the message after it.

A page takes another name (`rename=true`) and a program names the content that it replaces
(`If-Match`), because no question can be asked there. For the same reason a protected file
is refused.
"""

import os
from collections.abc import Callable
from hashlib import sha256

import anyio
from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.journal.events.kinds import Checkpointed, FileUploaded
from refold.place.port import Files, Real, Snapshots
from refold.session.session import Session

MAX_NAMES = 1_000  # of one file that are tried
_MAX_REPLACED_BYTES = 100 * 1024 * 1024


class FileExists(BadInput):
    """The file exists, and the upload does not say that it replaces it."""


class OtherContent(BadInput):
    """The file to replace is missing, or its content is not what the client knows."""


class Protected(BadInput):
    """A protected file: writing it would need the user's approval, or is never allowed."""


# Why a file, links followed, may not be written; or "".
Refusal = Callable[[Real], str]


class Upload(Struct, frozen=True):
    """`replaces` is what the client knows of the file that is there: its SHA-256, "*" for any
    content, "" for no file. With `renames`, a file that is there stays, and this one is stored
    beside it.
    """

    path: str
    content: bytes
    replaces: str = ""
    renames: bool = False


async def upload(
    session: Session,
    files: Files,
    snapshots: Snapshots | None,
    request: Upload,
    refusal: Refusal,
) -> str:
    """Write the file, and return its path. Raises `BadInput`, with nothing written.

    `refusal` is asked about the very file that is then written: a link may have changed before.
    """
    await _checkpoint(session, snapshots)
    before = session.view.checkpoints.seq
    real = Real("")
    with anyio.CancelScope(shield=True):  # a written file must be recorded
        real = await anyio.to_thread.run_sync(_write, files, request, refusal)
        digest = sha256(request.content).hexdigest()
        event = FileUploaded(real, len(request.content), digest, before)
        await session.record(event, kept=True, author="person")
        if snapshots is not None:
            snapshots.note_change()
        await _checkpoint(session, snapshots)
    name = os.path.basename(real)
    return os.path.join(os.path.dirname(request.path), name)


async def _checkpoint(session: Session, snapshots: Snapshots | None) -> None:
    """Record the files as they are, unless the journal has that."""
    if snapshots is None:
        return
    try:
        snapshots.forget()  # other programs may have changed anything since
        taken = await snapshots.take()
    except ToolFailed as error:
        snapshots.report_failure(str(error))
        return
    saved = session.view.checkpoints
    if taken.trees != saved.trees or saved.disturbed:
        await session.record(Checkpointed(taken.trees, taken.left_out), author="place")


def _write(files: Files, request: Upload, refusal: Refusal) -> Real:
    real = files.real(request.path)
    if why := refusal(real):
        raise Protected(f"{request.path!r} was not written: {why}")
    if request.renames:
        return _write_beside(files, request, refusal)
    kind = files.kind(real)
    if kind not in ("nothing", "file"):
        raise BadInput(f"{request.path!r} is a {kind}: choose another name")
    current = files.read(real, _MAX_REPLACED_BYTES) if kind == "file" else None
    _check(request, current)
    expect = "" if current is None else sha256(current).hexdigest()
    files.write(real, request.content, expect=expect)
    return real


def _check(request: Upload, current: bytes | None) -> None:
    if not request.replaces:
        if current is not None:
            raise FileExists(
                f"{request.path!r} exists: send If-Match with its ETag to replace it, or "
                "rename=true to keep both"
            )
        return
    digest = None if current is None else sha256(current).hexdigest()
    if digest is None or request.replaces not in ("*", digest):
        difference = "is not there" if digest is None else "has other content by now"
        raise OtherContent(f"{request.path!r} {difference}: read it again, then replace it")


def _write_beside(files: Files, request: Upload, refusal: Refusal) -> Real:
    """The first free name. Two uploads at once get two names: no file is ever replaced.

    A name that is a link to a protected file or out of the workspace is not free.
    """
    stem, ending = os.path.splitext(request.path)
    for number in range(MAX_NAMES):
        path = f"{stem}-{number}{ending}" if number else request.path
        if (real := _free_path(files, path, refusal)) is None:
            continue
        try:
            files.write(real, request.content, expect="")
        except ToolFailed:
            if files.kind(real) == "nothing":  # else it was taken just now
                raise
            continue
        return real
    raise BadInput(
        f"{request.path!r} and {MAX_NAMES - 1} more of its names exist: rename it"
    )


def _free_path(files: Files, path: str, refusal: Refusal) -> Real | None:
    """The real path, if a new file may be made there."""
    try:
        real = files.real(path)
    except ToolFailed:  # it leads elsewhere
        return None
    return real if files.kind(real) == "nothing" and not refusal(real) else None
