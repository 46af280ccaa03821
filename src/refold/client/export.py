"""Exports a session to a file that is written completely or not at all.

`journal.bundle` makes the tar, and `views.export` the formats for reading. This module
passes them what depends on this machine: blobs, the labels that tools give their calls, the
local time.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from refold.errors import BadInput, JournalError, RefoldError
from refold.journal.events.kinds import ModelAnswered, Said
from refold.journal.session_index import SessionIndex
from refold.journal.state.session_tree import Node, walk
from refold.safe_open import name_file
from refold.values.messages import Image, ToolCall
from refold.views.export.content import ExportOptions
from refold.views.number_format import count_with_noun

Label: TypeAlias = Callable[[ToolCall], str]  # describes a call in one line


class ExportedFile(Struct, frozen=True):
    """An export that was written to a file.

    `summary` is a line about its size; `damages` says what was left out because it is
    damaged.
    """

    path: Path
    bytes: int
    summary: str
    damages: tuple[str, ...] = ()


class ExportChoice(Struct, frozen=True):
    """What to export.

    `form` is "tar", "html", "text", "script" or "markdown". With `children` subagents are
    included, with `thoughts` the thinking.
    """

    form: str
    children: bool = True
    thoughts: bool = False


class Exported(Struct, frozen=True):
    """An export that was not written yet.

    `summary` is a line about its size; `damages` says what is left out because it is
    damaged.
    """

    pieces: Iterable[bytes]
    summary: str
    damages: Sequence[str]


def export_session(
    sessions: SessionIndex, session: str, choice: ExportChoice, label: Label
) -> Exported:
    """Return the export of a session in the chosen form.

    The journal is read while the pieces of the export are written.
    """
    if choice.form == "tar":
        packing = sessions.pack(session, children=choice.children)
        size = _size_text(packing.sessions, packing.events)
        return Exported(packing.pieces(), size, packing.damages)
    node = sessions.tree(session)
    if not node.entries:
        why = f": {node.damage}" if node.damage else ""
        raise BadInput(f"there is nothing valid to export in {session}{why}")
    nodes = list(walk(node)) if choice.children else [node]
    events = sum(len(item.entries) for item in nodes)
    damages = [item.damage for item in nodes if item.damage]
    pieces = (
        piece.encode(errors="replace") for piece in _pieces(sessions, node, choice, label)
    )
    return Exported(pieces, _size_text(len(nodes), events), damages)


def _size_text(sessions: int, events: int) -> str:
    return f"{count_with_noun(sessions, 'session')}, {count_with_noun(events, 'event')}"


def _pieces(
    sessions: SessionIndex, node: Node, choice: ExportChoice, label: Label
) -> Iterator[str]:
    """Return the text of a readable export, or of a script, in pieces."""
    options = ExportOptions(
        label=label,
        image=partial(_image, sessions),
        when=_time_text,
        thoughts=choice.thoughts,
        children=choice.children,
    )
    match choice.form:
        case "html":
            from refold.views.export.html import page

            return page(node, options)
        case "text":
            from refold.views.export.text import plain_document

            return plain_document(node, options)
        case "script":
            return _script(node, choice)
        case _:  # "markdown"
            from refold.views.export.text import markdown

            return markdown(node, options)


def _script(node: Node, choice: ExportChoice) -> Iterator[str]:
    """Yield the model's responses as lines that `--script` reads.

    The line with a subagent's response contains the task of the subagent, so that only a
    subagent with an equal task gets the response.
    """
    from refold.provider.cassette_format import Response, to_line
    from refold.session.replay_trail import deltas_of

    nodes = walk(node) if choice.children else [node]
    for item in nodes:
        is_subagent = item is not node
        events = [entry.event for entry in item.entries]
        prompts = (event.text for event in events if isinstance(event, Said))
        task = next(prompts, "") if is_subagent else ""  # the first message
        for event in events:
            if isinstance(event, ModelAnswered) and not event.partial:
                deltas = tuple(deltas_of(event))
                yield to_line(Response(conversation=task, deltas=deltas)).decode()


def _image(sessions: SessionIndex, node: Node, image: Image) -> bytes | None:
    """Return the content of an image; None if its file is missing from the session."""
    try:
        return sessions.blob(node.session, image.blob)
    except JournalError:
        return None


def _time_text(timestamp: float) -> str:
    """Return the local time; "?" for a number that is outside of the calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(timestamp))
    except (ValueError, OverflowError, OSError):
        return "?"


def check_free(path: Path, *, force: bool) -> None:
    """Raise `BadInput` if a file exists at `path`, unless `force` is set."""
    if path.is_dir():
        raise BadInput(f"{path} is a directory: give the name of a file in it")
    if not force and os.path.lexists(path) and not _is_device_or_pipe(path):
        raise BadInput(f"{path} already exists: choose another name, or use --force")


def save(path: Path, pieces: Iterable[bytes], *, force: bool = False) -> int:
    """Write the pieces to a file that only its owner can read, and return the number of bytes.

    Raises `BadInput` if the file exists, unless `force` is set.
    """
    check_free(path, force=force)
    try:
        if _is_device_or_pipe(path):  # a device or a named pipe cannot be replaced
            return _write_pieces(path, os.O_WRONLY | os.O_CLOEXEC, pieces)
        return _write_then_rename(path, pieces, force=force)
    except FileExistsError as error:
        raise BadInput(
            f"{path} already exists: choose another name, or use --force"
        ) from error
    except OSError as error:
        raise RefoldError(f"cannot write {path}: {error.strerror}") from error


def _write_then_rename(path: Path, pieces: Iterable[bytes], *, force: bool) -> int:
    """Write a temporary file beside `path`, and rename it to `path` once it is complete.

    Return the number of bytes. Raises `FileExistsError` if `path` exists, unless `force` is
    set.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        size = _write_pieces(temporary, flags, pieces)
        if force:
            temporary.replace(path)
        else:
            name_file(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return size


def _write_pieces(path: Path, flags: int, pieces: Iterable[bytes]) -> int:
    """Write the pieces to a file, opened with `flags`. Return the number of bytes."""
    size = 0
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        for piece in pieces:
            size += file.write(piece)
        file.flush()
        with suppress(OSError):  # a pipe cannot be synced
            os.fsync(file.fileno())
    return size


def _is_device_or_pipe(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)
