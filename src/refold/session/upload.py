"""Writes a file of the user into the workspace and records it, with a checkpoint before and
after.

`place` writes the file completely or not at all. An existing file is replaced only if the
user asked to replace this file. `session.rewind` undoes an upload together with the message
after it.

No question can be asked during an upload. So the web page stores the file under another name
(`rename=true`), and a program names the content that the file replaces (`If-Match`). A
protected file is refused, because the user cannot be asked.
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

MAX_NAMES = 1_000  # numbered names that are tried for one file
_MAX_REPLACED_BYTES = 100 * 1024 * 1024


class FileExists(BadInput):
    """The file exists, and the upload does not say that it replaces this file."""


class OtherContent(BadInput):
    """The file to replace is missing, or has other content than the client expects."""


class Protected(BadInput):
    """The file is protected: writing it would need the user's approval, or is never
    allowed.
    """


UPLOAD_REFUSALS: tuple[type[BadInput], ...] = (FileExists, OtherContent, Protected)
# Returns the reason why a file, links followed, may not be written; or "".
Refusal = Callable[[Real], str]


class Upload(Struct, frozen=True):
    """A file to write into the workspace.

    `replaces` is the content that the client expects at the path: a SHA-256, "*" for any
    content, "" for no file. With `renames`, a file that exists is not replaced, and the new
    file gets another name.
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
    """Write the file, and return its path. Raises `BadInput`, and then writes nothing.

    `refusal` is called with the real path to which the file is then written: a link may have
    changed since the client asked.
    """
    await _checkpoint(session, snapshots)
    before = session.view.checkpoints.seq
    real = Real("")  # for the type checker: a `with` block may end early
    with anyio.CancelScope(shield=True):  # a file that was written must be recorded
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
    """Record a checkpoint of the files, unless the journal has one of their present state."""
    if snapshots is None:
        return
    try:
        snapshots.forget()  # other programs may have changed files since
        taken = await snapshots.take()
    except ToolFailed as error:
        snapshots.report_failure(str(error))
        return
    saved = session.view.checkpoints
    if taken.trees != saved.trees or saved.disturbed:
        await session.record(Checkpointed(taken.trees, taken.left_out), author="place")


def _write(files: Files, request: Upload, refusal: Refusal) -> Real:
    """Write the file, and return its real path. Raises `BadInput` if it may not be written."""
    real = files.real(request.path)
    if why := refusal(real):
        raise Protected(f"{request.path!r} was not written: {why}")
    if request.renames:
        return _write_beside(files, request, refusal)
    kind = files.kind(real)
    if kind not in ("nothing", "file"):
        raise BadInput(f"{request.path!r} is a {kind}: choose another name")
    current = files.read(real, _MAX_REPLACED_BYTES) if kind == "file" else None
    _check_replaced(request, current)
    expect = "" if current is None else sha256(current).hexdigest()
    files.write(real, request.content, expect=expect)
    return real


def _check_replaced(request: Upload, current: bytes | None) -> None:
    """Raise `BadInput` if the client did not expect the `current` content. None means no
    file.

    `request.replaces` is the hash of the expected content; "*" means any, "" no file.
    """
    if not request.replaces:
        if current is not None:
            raise FileExists(
                f"{request.path!r} exists: send If-Match with its ETag to replace it, or "
                "rename=true to keep both"
            )
        return
    if current is None:
        difference = "is not there"
    elif request.replaces in ("*", sha256(current).hexdigest()):
        return
    else:
        difference = "has other content by now"
    raise OtherContent(f"{request.path!r} {difference}: read it again, then replace it")


def _write_beside(files: Files, request: Upload, refusal: Refusal) -> Real:
    """Write the file under the first free name, and return its real path.

    Two simultaneous uploads get different names.

    A name that is a link to a protected file, or to a path outside of the workspace, is not
    free.
    """
    stem, ending = os.path.splitext(request.path)
    for number in range(MAX_NAMES):
        path = f"{stem}-{number}{ending}" if number else request.path
        if (real := _free_path(files, path, refusal)) is None:
            continue
        try:
            files.write(real, request.content, expect="")
        except ToolFailed:
            if files.kind(real) == "nothing":
                raise
            continue  # another program has just taken the name
        return real
    raise BadInput(
        f"{request.path!r} and {MAX_NAMES - 1} more of its names exist: rename it"
    )


def _free_path(files: Files, path: str, refusal: Refusal) -> Real | None:
    """Return the real path if a new file may be created there; otherwise None."""
    try:
        real = files.real(path)
    except ToolFailed:  # the path leads out of the workspace
        return None
    return real if files.kind(real) == "nothing" and not refusal(real) else None
