"""The tool `apply_patch`: changes many files with one patch, all of it or nothing.

Every file is read, every hunk located and applied in memory, and every problem reported
before the first file changes; then `place` writes all files in one operation.
`patch_format` parses the patch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Files, FileWrite, Real, Secrets
from refold.tools.contract import Reply, tool
from refold.tools.edit import not_found
from refold.tools.file_versions import DiffText, change, changed, current, digest, encoded
from refold.tools.text_files import EditableText, check_sendable, written
from refold.tools.write_checks import syntax_note
from refold.values.display import Diff
from refold.values.printable_names import escaped
from refold.values.text import restored
from refold.values.tools import Effect

if TYPE_CHECKING:
    from refold.tools.patch_format import Hunk, Section

_NO_TEXT = DiffText("@@ the file was not text @@", 0, 0)


def named(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Every file that a patch would make, change, move or remove."""
    from refold.tools.patch_format import read_patch

    found = read_patch(str(arguments.get("patch", "")))
    names = (name for section in found for name in (section.path, section.moved_to))
    return tuple(dict.fromkeys(name for name in names if name))


@tool(Effect.CHANGE, paths=named, dry_run=True)
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
    from refold.tools.patch_format import read_patch

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
        self.puts, self.diffs, self.said = list[FileWrite](), list[Diff](), list[str]()

    def take(self, section: "Section") -> None:
        real = self._files.real(section.path)
        match section.kind:
            case "add":
                self._add(real, section)
            case "delete":
                self._delete(real)
            case "update":
                self._update(real, section)

    def _add(self, real: Real, section: "Section") -> None:
        name = self._free(real, "change it with *** Update File")
        section = replace(section, content=restored(section.content, ""))
        self._files.secrets("", name).restored(section.content)
        data = section.content.encode()
        self._put(FileWrite(real, data, "", executable=section.executable))
        made = change("", section.content)
        self.diffs.append(Diff(escaped(real), "created", made.text, "", digest(data)))
        self.said.append(f"Created {name} ({made.count}).")

    def _delete(self, real: Real) -> None:
        before = current(real, self._files, self._known)
        self._put(FileWrite(real, None, digest(before)))
        was = written(before)
        made = change(was.plain, "") if was else _NO_TEXT
        self.diffs.append(Diff(escaped(real), "deleted", made.text, digest(before)))
        self.said.append(f"Deleted {self._files.called(real)}.")

    def _update(self, real: Real, section: "Section") -> None:
        name = self._files.called(real)
        before = current(real, self._files, self._known)
        data, made, remarks = _updated(before, section, name, self._files)
        to = self._files.real(section.moved_to) if section.moved_to else real
        if to != real:
            self._move(real, to, before, data, made)
        elif data == before and section.executable is None:
            raise ToolFailed(f"The patch leaves {name} as it is.")
        else:
            self._put(FileWrite(real, data, digest(before), executable=section.executable))
            self.diffs.append(changed(real, made, before, data))
            self.said.append(f"Changed {name} ({made.count}).")
        self.said += remarks

    def _move(
        self, real: Real, to: Real, before: bytes, data: bytes, made: DiffText
    ) -> None:
        name, new = self._files.called(real), self._free(to, "nothing is moved over it")
        self._put(FileWrite(to, data, "", like=real))
        self._put(FileWrite(real, None, digest(before)))
        gone, come = f"@@ moved to {new} @@", f"@@ moved from {name} @@\n{made.text}"
        self.diffs += (
            Diff(escaped(real), "deleted", gone, digest(before)),
            Diff(escaped(to), "created", come.rstrip("\n"), "", digest(data)),
        )
        self.said.append(f"Moved {name} to {new} ({made.count}).")

    def _free(self, real: Real, instead: str) -> str:
        name = self._files.called(real)
        if self._files.kind(real) != "nothing":
            raise ToolFailed(f"{name} already exists: {instead}.")
        return name

    def _put(self, put: FileWrite) -> None:
        if any(put.real == other.real for other in self.puts):
            name = self._files.called(put.real)
            raise ToolFailed(
                f"The patch names {name} twice: write all that is to be done to it in one "
                "section."
            )
        self.puts.append(put)


def _updated(
    before: bytes, section: "Section", name: str, files: Files
) -> tuple[bytes, DiffText, tuple[str, ...]]:
    if not section.hunks:
        return before, DiffText("", 0, 0), ()
    was = written(before)
    if was is None:
        raise ToolFailed(f"{name} is not text: a patch cannot change it.")
    secrets = files.secrets(was.plain, name)
    hunks = [_with_values(hunk, secrets) for hunk in section.hunks]
    found = hunked(was, hunks, name)
    made = change(was.plain, found.text.replace("\r\n", "\n"))
    remarks = [f"In {name} {remark}." for remark in found.remarks]
    if note := syntax_note(name, was.plain, found.text.replace("\r\n", "\n")):
        remarks.append(note)
    return encoded(was, found.text, name), made, tuple(remarks)


def _with_values(hunk: "Hunk", secrets: Secrets) -> "Hunk":
    """The hunk with the secrets of the file. A line that stays or goes may have had none."""
    rows = list[tuple[str, str]]()
    for sign, text in hunk.rows:
        line = secrets.restored(text) if sign == "+" else secrets.as_in_file(text)
        rows += ((sign, part) for part in line.split("\n"))  # a key may have several lines
    headers = tuple(map(secrets.as_in_file, hunk.headers))
    return replace(hunk, rows=tuple(rows), headers=headers)


_NAMED = 10  # places in a sentence


class _Splice(Struct, frozen=True):
    """Lines from `start` up to `end`, and their replacement."""

    start: int
    end: int
    come: tuple[str, ...]


class PatchedText(Struct, frozen=True):
    """The new text, with its line ends, and notes for the model."""

    text: str
    remarks: tuple[str, ...]


def hunked(was: EditableText, hunks: "Sequence[Hunk]", name: str) -> PatchedText:
    """Apply all hunks. Raises `ToolFailed` for one whose place is ambiguous."""
    hunks = [_as_in_file(hunk, was.plain) for hunk in hunks]
    bare = bool(was.plain) and not was.plain.endswith("\n")
    end = "\r\n" if was.crlf else "\n"
    work = replace(was, text=was.text + end) if bare else was
    lines = work.plain.split("\n")[:-1]
    splices, remarks, done = list[_Splice](), list[str](), 0
    for number, hunk in enumerate(hunks, 1):
        start, loosely = _Search(lines, hunk, done, name, f"Hunk {number}").place()
        if loosely:
            remarks.append(f"hunk {number} differed in white space at line ends")
        splices += _splices(hunk, start)
        done = start + len(hunk.old)
    offsets = _offsets(lines)
    for splice in reversed(splices):
        first = offsets[splice.start]
        old = work.plain[first : offsets[splice.end]]
        new = "".join(f"{line}\n" for line in splice.come)
        work = replace(work, text=work.replaced([first], old, new))
    finals = [hunk.final for hunk in hunks if hunk.final is not None]
    if not finals[-1] if finals else bare:
        return PatchedText(_unended(work.text), tuple(remarks))
    return PatchedText(work.text, tuple(remarks))


def _splices(hunk: "Hunk", at: int) -> Iterable[_Splice]:
    start, come = at, list[str]()
    for sign, text in (*hunk.rows, (" ", "")):
        if sign == "+":
            come.append(text)
        elif sign == "-":
            at += 1
        else:
            if come or at > start:
                yield _Splice(start, at, tuple(come))
            come.clear()
            at += 1
            start = at


def _offsets(lines: Sequence[str]) -> list[int]:
    found = [0]
    for line in lines:
        found.append(found[-1] + len(line) + 1)
    return found


def _as_in_file(hunk: "Hunk", text: str) -> "Hunk":
    rows = tuple((sign, restored(line, text)) for sign, line in hunk.rows)
    return replace(hunk, rows=rows)


def _unended(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


class _Search:
    """The place of a hunk in `lines`, from line `done` on."""

    def __init__(
        self, lines: Sequence[str], hunk: "Hunk", done: int, name: str, what: str
    ) -> None:
        self._lines, self._hunk, self._done, self._name = lines, hunk, done, name
        self._what = f"{what} (line {hunk.line} of the patch)"

    def place(self) -> tuple[int, bool]:
        """The line, from 0, and whether white space was overlooked."""
        hunk = self._hunk
        after = self._after_headers() if hunk.headers else None
        if not hunk.old:
            return self._insertion(after), False
        for key, loosely in ((str, False), (str.rstrip, True)):
            found = self._fits(key, hunk.old, after)
            if len(found) == 1:
                return found[0], loosely
            if found:
                raise ToolFailed(self._ambiguous(found))
        raise ToolFailed(self._missing())

    def _fits(
        self, key: Callable[[str], str], old: Sequence[str], after: Sequence[int] | None
    ) -> list[int]:
        lines = self._lines if key is str else [key(line) for line in self._lines]
        found = _starts(lines, [key(line) for line in old])
        found = [at for at in found if at >= self._done]
        if self._hunk.at_end:
            found = [at for at in found if at + len(old) == len(self._lines)]
        if after is not None:
            first = {next((f for f in found if f >= a), -1) for a in after} - {-1}
            return sorted(first)
        claimed = self._hunk.at - 1
        return [claimed] if claimed in found else found

    def _after_headers(self) -> list[int]:
        places = [self._done - 1]
        for header in self._hunk.headers:
            stands = [
                at
                for at, line in enumerate(self._lines)
                if line.strip() == header.strip() and at >= self._done
            ]
            if len(places) == 1:
                places = [at for at in stands if at > places[0]]
            else:
                nexts = {next((s for s in stands if s > p), -1) for p in places}
                places = sorted(nexts - {-1})
            if not places:
                raise ToolFailed(
                    f"{self._what}: there is no line {header!r} in {self._name}"
                    f"{' after the hunk before it' if self._done else ''}. After @@ comes a "
                    "whole line of the file, or nothing."
                )
        return places

    def _insertion(self, after: Sequence[int] | None) -> int:
        if after is not None:
            if len(after) > 1:
                raise ToolFailed(self._ambiguous([at + 1 for at in after]))
            return after[0] + 1
        if not self._hunk.at:
            return len(self._lines)
        if not self._done <= self._hunk.at - 1 <= len(self._lines):
            raise ToolFailed(
                f"{self._what} adds at line {self._hunk.at}, and {self._name} has "
                f"{len(self._lines):,} lines. Give lines around it."
            )
        return self._hunk.at - 1

    def _ambiguous(self, found: Sequence[int]) -> str:
        numbers = ", ".join(str(at + 1) for at in found[:_NAMED])
        more = ", …" if len(found) > _NAMED else ""
        return (
            f"{self._what} fits {len(found):,} places in {self._name}, at lines {numbers}"
            f"{more}. Add lines around it, or a line above it after @@."
        )

    def _missing(self) -> str:
        old, whole = self._hunk.old, "\n".join(self._lines)
        found = _starts(self._lines, old)
        if found and self._hunk.at_end:
            return f"{self._what} stands in {self._name} at line {found[0] + 1}, not at its end."
        if found:
            return (
                f"{self._what} stands in {self._name} only at line {found[0] + 1}, before "
                "what is named above it: give hunks in the order of the file."
            )
        return not_found(self._what, whole, "\n".join(old), self._name)


def _starts(lines: Sequence[str], old: Sequence[str]) -> list[int]:
    found, wanted, at = list[int](), list(old), -1
    with suppress(ValueError):  # there is no further line like the first
        while True:
            at = lines.index(wanted[0], at + 1)
            if lines[at : at + len(wanted)] == wanted:
                found.append(at)
    return found
