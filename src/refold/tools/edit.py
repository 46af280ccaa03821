"""The tools `write_file`, `edit_file` and `multi_edit`: change one file.

Unchanged parts keep their bytes: line ends, encoding, byte order mark. A file can be
overwritten only in the version that the model last saw (`known`). `place` replaces the
file atomically.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Files, Real
from refold.place.printable_names import escaped
from refold.tools.contract import ReadRange, Reply, tool
from refold.tools.file_versions import DiffText, change, changed, current, digest, encoded
from refold.tools.find_replacement import as_in_file, places, result
from refold.tools.text_files import EditableText, check_sendable, written
from refold.values.display import Diff, Note
from refold.values.text import restored
from refold.values.tools import Effect

_NO_TEXT = DiffText("@@ the file was no text @@", 0, 0)


@tool(Effect.CHANGE, path="path")
async def write_file(
    path: str, content: str, *, files: Files, known: Mapping[str, str]
) -> Reply:
    """Create a file, or replace all of one that was read before."""
    return await to_thread.run_sync(partial(_write, path, content, files, known))


@tool(Effect.CHANGE, path="path")
async def edit_file(
    path: str,
    old: Annotated[str, Meta(description="exact text, without line numbers")],
    new: str,
    all: Annotated[bool, Meta(description="replace every occurrence")] = False,
    *,
    files: Files,
    known: Mapping[str, str],
) -> Reply:
    """Replace text in a file that was read before. The old text must occur once."""
    return await to_thread.run_sync(partial(_edit, path, old, new, all, files, known))


def _write(path: str, content: str, files: Files, known: Mapping[str, str]) -> Reply:
    check_sendable(content, "content")
    real = files.real(path)
    name = files.called(real)
    if files.kind(real) == "nothing":
        data = content.encode()
        files.write(real, data, expect="")
        made = change("", content)
        diff = Diff(escaped(real), "created", made.text, "", digest(data))
        return Reply(f"Created {name}, {_lines(content)}.", (diff,))
    before = current(real, files, known)
    was = written(before)
    content = restored(content, was.text) if was else content
    data = _as_before(content, was)
    if data == before:
        return _unchanged(real, name, data)
    files.write(real, data, expect=digest(before))
    made = change(was.plain, content.replace("\r\n", "\n")) if was else _NO_TEXT
    diff = changed(real, made, before, data)
    return Reply(f"Wrote {name}, {_lines(content)} ({made.count}).", (diff,))


def _edit(
    path: str, old: str, new: str, all: bool, files: Files, known: Mapping[str, str]
) -> Reply:
    check_sendable(new, "new")
    real = files.real(path)
    name = files.called(real)
    before = current(real, files, known)
    was = written(before)
    if was is None:
        raise ToolFailed(f"{name} is not text: edit_file cannot change it.")
    old, new = as_in_file(old, was.plain), as_in_file(new, was.plain)
    found = places(was.plain, old, new, name, all=all)
    after = was.replaced(found, old, new)
    data = encoded(was, after, name)
    files.write(real, data, expect=digest(before))
    made = change(was.plain, after.replace("\r\n", "\n"))
    diff = changed(real, made, before, data)
    return Reply(result(was.plain, found, name, made.count), (diff,))


def _as_before(content: str, was: EditableText | None) -> bytes:
    """`content` with the line ends and the encoding of the file it replaces."""
    if was is None:
        return content.encode()
    text = content if "\r" in content else was.with_ends(content)
    try:
        return was.encoded(text)
    except UnicodeEncodeError:  # the old encoding has no such letter; UTF-8 has all
        return text.encode()


def _unchanged(real: Real, name: str, data: bytes) -> Reply:
    seen = (ReadRange(escaped(real), digest(data)),)
    return Reply(
        f"{name} has this content already; nothing was written.",
        (Note(f"{name} is as it was"),),
        seen,
    )


def _lines(content: str) -> str:
    many = content.count("\n") + (not content.endswith("\n") and bool(content))
    return f"{many:,} line{'' if many == 1 else 's'}"


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    old: str
    new: str
    all: bool = False


@tool(Effect.CHANGE, path="path")
async def multi_edit(
    path: str,
    edits: Annotated[tuple[Edit, ...], Meta(min_length=1)],
    *,
    files: Files,
    known: Mapping[str, str],
) -> Reply:
    """Like edit_file, several times on one file, in order: all edits or none."""
    return await to_thread.run_sync(partial(_edit_all, path, edits, files, known))


def _edit_all(
    path: str, edits: Sequence[Edit], files: Files, known: Mapping[str, str]
) -> Reply:
    real = files.real(path)
    name = files.called(real)
    before = current(real, files, known)
    was = written(before)
    if was is None:
        raise ToolFailed(f"{name} is not text: multi_edit cannot change it.")
    now, count = was, 0
    for number, edit in enumerate(edits, 1):
        try:
            now, times = _edited(now, edit, name)
        except ToolFailed as error:
            raise ToolFailed(
                f"Edit {number} of {len(edits)}: {error} No edit was done."
            ) from error
        count += times
    data = encoded(was, now.text, name)
    if data == before:
        raise ToolFailed(f"All edits together leave {name} as it is. No edit was done.")
    files.write(real, data, expect=digest(before))
    made = change(was.plain, now.plain)
    told = f"{count:,} place{'' if count == 1 else 's'}"
    return Reply(
        f"Edited {name}: {told} ({made.count}).", (changed(real, made, before, data),)
    )


def _edited(now: EditableText, edit: Edit, name: str) -> tuple[EditableText, int]:
    check_sendable(edit.new, "new")
    old, new = as_in_file(edit.old, now.plain), as_in_file(edit.new, now.plain)
    found = places(now.plain, old, new, name, all=edit.all)
    return replace(now, text=now.replaced(found, old, new)), len(found)
