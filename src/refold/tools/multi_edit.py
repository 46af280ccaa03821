"""The tool that changes one file in several places: all of them, or none.

One exact piece is `write.edit_file`'s; several files at once are `apply_patch`'s.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Files
from refold.tools.contract import Reply, tool
from refold.tools.diffs import change
from refold.tools.known import changed, current, digest, encoded
from refold.tools.matching import as_in_file, places
from refold.tools.texts import EditableText, check_sendable, written
from refold.values.tools import Effect


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
    return await to_thread.run_sync(partial(_edit, path, edits, files, known))


def _edit(
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
