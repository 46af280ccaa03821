"""The tool that changes many files with one patch: all of it, or nothing.

Every file is read, every hunk done in memory and every refusal told before the first
file is touched; then `place` puts them all in one go. Reading the patch is `patches`'
business, finding the places `hunks`'.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from anyio import to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.place.names import escaped
from refold.place.port import Files, Put, Real
from refold.tools.contract import Reply, tool
from refold.tools.diffs import DiffText, change
from refold.tools.hunks import hunked
from refold.tools.known import changed, current, digest, encoded
from refold.tools.patches import Section, read_patch
from refold.tools.texts import check_sendable, written
from refold.values.shown import Diff
from refold.values.tools import Effect

_NO_TEXT = DiffText("@@ the file was no text @@", 0, 0)


def named(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Every file that a patch would make, change, move or remove."""
    found = read_patch(str(arguments.get("patch", "")))
    names = (name for section in found for name in (section.path, section.moved_to))
    return tuple(dict.fromkeys(name for name in names if name))


@tool(Effect.CHANGE, paths=named)
async def apply_patch(
    patch: Annotated[
        str,
        Meta(
            description="*** Begin Patch, per file *** Update File: PATH (and *** Move to: "
            "PATH), @@ and lines after space, - or +; or *** Add File: PATH and + lines; or "
            "*** Delete File: PATH; *** End Patch"
        ),
    ],
    *,
    files: Files,
    known: Mapping[str, str],
) -> Reply:
    """Change files that were read before, all or none. Or a unified diff."""
    return await to_thread.run_sync(partial(_apply, patch, files, known))


def _apply(patch: str, files: Files, known: Mapping[str, str]) -> Reply:
    check_sendable(patch, "patch")
    asked = _Asked(files, known)
    try:
        for section in read_patch(patch):
            asked.take(section)
    except ToolFailed as error:
        raise ToolFailed(f"{error}\nNothing was changed.") from error
    files.put_all(asked.puts)
    return Reply("\n".join(asked.said), tuple(asked.diffs))


class _Asked:
    """What is to be put, shown and said, section by section."""

    def __init__(self, files: Files, known: Mapping[str, str]) -> None:
        self._files, self._known = files, known
        self.puts, self.diffs, self.said = list[Put](), list[Diff](), list[str]()

    def take(self, section: Section) -> None:
        real = self._files.real(section.path)
        match section.kind:
            case "add":
                self._add(real, section)
            case "delete":
                self._delete(real)
            case "update":
                self._update(real, section)

    def _add(self, real: Real, section: Section) -> None:
        name = self._free(real, "change it with *** Update File")
        data = section.content.encode()
        self._put(Put(real, data, "", executable=section.executable))
        made = change("", section.content)
        self.diffs.append(Diff(escaped(real), "created", made.text, "", digest(data)))
        self.said.append(f"Created {name} ({made.count}).")

    def _delete(self, real: Real) -> None:
        before = current(real, self._files, self._known)
        self._put(Put(real, None, digest(before)))
        was = written(before)
        made = change(was.plain, "") if was else _NO_TEXT
        self.diffs.append(Diff(escaped(real), "deleted", made.text, digest(before)))
        self.said.append(f"Deleted {self._files.called(real)}.")

    def _update(self, real: Real, section: Section) -> None:
        name = self._files.called(real)
        before = current(real, self._files, self._known)
        data, made, remarks = _updated(before, section, name)
        to = self._files.real(section.moved_to) if section.moved_to else real
        if to != real:
            self._move(real, to, before, data, made)
        elif data == before and section.executable is None:
            raise ToolFailed(f"The patch leaves {name} as it is.")
        else:
            self._put(Put(real, data, digest(before), executable=section.executable))
            self.diffs.append(changed(real, made, before, data))
            self.said.append(f"Changed {name} ({made.count}).")
        self.said += [f"In {name} {remark}." for remark in remarks]

    def _move(
        self, real: Real, to: Real, before: bytes, data: bytes, made: DiffText
    ) -> None:
        name, new = self._files.called(real), self._free(to, "nothing is moved over it")
        self._put(Put(to, data, "", like=real))
        self._put(Put(real, None, digest(before)))
        gone, come = f"@@ moved to {new} @@", f"@@ moved from {name} @@\n{made.text}"
        self.diffs += (
            Diff(escaped(real), "deleted", gone, digest(before)),
            Diff(escaped(to), "created", come.rstrip("\n"), "", digest(data)),
        )
        self.said.append(f"Moved {name} to {new} ({made.count}).")

    def _free(self, real: Real, instead: str) -> str:
        name = self._files.called(real)
        if self._files.kind(real) != "nothing":
            raise ToolFailed(f"{name} is there already: {instead}.")
        return name

    def _put(self, put: Put) -> None:
        if any(put.real == other.real for other in self.puts):
            name = self._files.called(put.real)
            raise ToolFailed(
                f"The patch names {name} twice: write all that is to be done to it in one "
                "section."
            )
        self.puts.append(put)


def _updated(
    before: bytes, section: Section, name: str
) -> tuple[bytes, DiffText, tuple[str, ...]]:
    if not section.hunks:
        return before, DiffText("", 0, 0), ()
    was = written(before)
    if was is None:
        raise ToolFailed(f"{name} is not text: a patch cannot change it.")
    found = hunked(was, section.hunks, name)
    made = change(was.plain, found.text.replace("\r\n", "\n"))
    return encoded(was, found.text, name), made, found.remarks
