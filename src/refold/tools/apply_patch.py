"""The tool `apply_patch`: changes many files with one patch, all of them or none.

It reads every file, finds the place of every hunk, applies the hunks in memory, and reports
every problem before the first file changes. Then `place` writes all files in one operation.
`patch_format` parses the patch.
"""

from bisect import bisect_left
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
from refold.tools.edit import not_found_message
from refold.tools.file_versions import (
    DiffText,
    compare_texts,
    digest,
    encode_like,
    read_current,
    to_diff,
)
from refold.tools.text_files import EditableText, check_sendable, decode_text
from refold.tools.write_checks import syntax_note
from refold.values.display import Diff
from refold.values.printable_names import escape_name
from refold.values.text import restore_invisible
from refold.values.tools import Effect

if TYPE_CHECKING:
    from refold.tools.patch_format import Hunk, Section

_NO_TEXT = DiffText("@@ the file was not text @@", plus=0, minus=0)


def files_of_patch(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Return every file that a patch would create, change, move or remove.

    `arguments` are those of the call.
    """
    from refold.tools.patch_format import read_patch

    sections = read_patch(str(arguments.get("patch", "")))
    names = (name for section in sections for name in (section.path, section.moved_to))
    return tuple(dict.fromkeys(name for name in names if name))


@tool(Effect.CHANGE, paths=files_of_patch, dry_run=True)
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


def _apply(patch: str, files: Files, known_digests: Mapping[str, str]) -> Reply:
    """Apply a patch. Raises `ToolFailed`, and changes nothing, if a section does not fit."""
    from refold.tools.patch_format import read_patch

    check_sendable(patch, "patch")
    planned = _PlannedChanges(files, known_digests)
    try:
        for section in read_patch(patch):
            planned.add(section)
    except ToolFailed as error:
        raise ToolFailed(f"{error}\nNothing was changed.") from error
    files.put_all(planned.writes)
    return Reply("\n".join(planned.lines), tuple(planned.diffs))


class _PlannedChanges:
    """Collects the changes that a patch makes: the files to write, the diffs, and notes for the
    model.

    `add` plans one section of the patch.
    """

    def __init__(self, files: Files, known_digests: Mapping[str, str]) -> None:
        self._files, self._known = files, known_digests
        self.writes, self.diffs, self.lines = list[FileWrite](), list[Diff](), list[str]()

    def add(self, section: "Section") -> None:
        """Plan the changes of one section. Nothing is written yet."""
        real = self._files.real(section.path)
        match section.kind:
            case "add":
                self._add(real, section)
            case "delete":
                self._delete(real)
            case "update":
                self._update(real, section)

    def _add(self, real: Real, section: "Section") -> None:
        """Plan a new file. Raises `ToolFailed` if it exists already."""
        name = self._check_unused(real, "change it with *** Update File")
        section = replace(section, content=restore_invisible(section.content, before=""))
        # This only checks: a new file has no secrets, so a mask in it raises `ToolFailed`.
        self._files.secrets("", name).unmask(section.content)
        data = section.content.encode()
        self._add_write(FileWrite(real, data, expect="", executable=section.executable))
        diff = compare_texts(before="", after=section.content)
        self.diffs.append(Diff(escape_name(real), "created", diff.text, after=digest(data)))
        self.lines.append(f"Created {name} ({diff.count}).")

    def _delete(self, real: Real) -> None:
        """Plan to delete a file that the model knows in its current version."""
        before = read_current(real, self._files, self._known)
        self._add_write(FileWrite(real, content=None, expect=digest(before)))
        old = decode_text(before)
        diff = compare_texts(old.plain, after="") if old else _NO_TEXT
        self.diffs.append(
            Diff(escape_name(real), "deleted", diff.text, before=digest(before))
        )
        self.lines.append(f"Deleted {self._files.display_name(real)}.")

    def _update(self, real: Real, section: "Section") -> None:
        """Plan the changes of a file, which may also be moved or made executable."""
        name = self._files.display_name(real)
        before = read_current(real, self._files, self._known)
        data, diff, remarks = _apply_hunks(before, section, name, self._files)
        to = self._files.real(section.moved_to) if section.moved_to else real
        if to != real:
            self._add_move(real, to, before, data, diff)
        elif data == before and section.executable is None:
            raise ToolFailed(f"The patch leaves {name} as it is.")
        else:
            self._add_write(
                FileWrite(real, data, expect=digest(before), executable=section.executable)
            )
            self.diffs.append(to_diff(real, diff, before, data))
            self.lines.append(f"Changed {name} ({diff.count}).")
        self.lines += remarks

    def _add_move(
        self, real: Real, to: Real, before: bytes, data: bytes, diff: DiffText
    ) -> None:
        """Plan a move from `real` with the content `before` to `to` with the content `data`."""
        old_name = self._files.display_name(real)
        new_name = self._check_unused(to, "nothing is moved over it")
        self._add_write(FileWrite(to, data, expect="", like=real))
        self._add_write(FileWrite(real, content=None, expect=digest(before)))
        deleted_text = f"@@ moved to {new_name} @@"
        created_text = f"@@ moved from {old_name} @@\n{diff.text}".rstrip("\n")
        self.diffs += (
            Diff(escape_name(real), "deleted", deleted_text, before=digest(before)),
            Diff(escape_name(to), "created", created_text, after=digest(data)),
        )
        self.lines.append(f"Moved {old_name} to {new_name} ({diff.count}).")

    def _check_unused(self, real: Real, advice: str) -> str:
        """Return the name of a file, after checking that the file does not exist.

        Raises `ToolFailed` if it exists; `advice` ends the message.
        """
        name = self._files.display_name(real)
        if self._files.kind(real) != "nothing":
            raise ToolFailed(f"{name} already exists: {advice}.")
        return name

    def _add_write(self, new: FileWrite) -> None:
        """Add a write. Raises `ToolFailed` if an earlier section names this file."""
        if any(new.real == write.real for write in self.writes):
            name = self._files.display_name(new.real)
            raise ToolFailed(
                f"The patch names {name} twice: write all its changes in one section."
            )
        self.writes.append(new)


def _apply_hunks(
    before: bytes, section: "Section", name: str, files: Files
) -> tuple[bytes, DiffText, tuple[str, ...]]:
    """Return the changed content of a file, its diff, and remarks for the model.

    `before` is the present content, and `name` the file's name for messages.
    """
    if not section.hunks:
        return before, DiffText("", plus=0, minus=0), ()
    old = decode_text(before)
    if old is None:
        raise ToolFailed(f"{name} is not text: a patch cannot change it.")
    secrets = files.secrets(old.plain, name)
    hunks = [_unmask_hunk(hunk, secrets) for hunk in section.hunks]
    patched = patch_text(old, hunks, name)
    new_plain = patched.text.replace("\r\n", "\n")
    diff = compare_texts(old.plain, new_plain)
    remarks = [f"In {name} {remark}." for remark in patched.remarks]
    if note := syntax_note(name, old.plain, new_plain):
        remarks.append(note)
    return encode_like(old, patched.text, name), diff, tuple(remarks)


def _unmask_hunk(hunk: "Hunk", secrets: Secrets) -> "Hunk":
    """Return the hunk with the file's secrets in place of the masks that the model saw.

    In headers and in kept and removed lines, a mask that stands for no secret stays unchanged.
    In an added line it raises `ToolFailed`, unless the file has that line.
    """
    rows = list[tuple[str, str]]()
    for sign, text in hunk.rows:
        line = secrets.unmask(text) if sign == "+" else secrets.as_in_file(text)
        rows += ((sign, part) for part in line.split("\n"))  # a key may span several lines
    headers = tuple(map(secrets.as_in_file, hunk.headers))
    return replace(hunk, rows=tuple(rows), headers=headers)


_MAX_LISTED_PLACES = 10  # listed in a message


class _Splice(Struct, frozen=True):
    """A replacement for the lines from index `start` up to, but not including, `end`."""

    start: int
    end: int
    new_lines: tuple[str, ...]


class PatchedText(Struct, frozen=True):
    """The text after a patch, with the line ends of the file, and notes for the model."""

    text: str
    remarks: tuple[str, ...]


def patch_text(original: EditableText, hunks: "Sequence[Hunk]", name: str) -> PatchedText:
    """Apply all hunks to the text of a file. `name` is the file's name for messages.

    Raises `ToolFailed` for a hunk whose place is missing or ambiguous.
    """
    hunks = [_with_file_line_ends(hunk, original.plain) for hunk in hunks]
    lacks_last_end = bool(original.plain) and not original.plain.endswith("\n")
    end = "\r\n" if original.crlf else "\n"
    # While the hunks are applied, every line has an end.
    work = replace(original, text=original.text + end) if lacks_last_end else original
    lines = work.plain.split("\n")[:-1]
    splices, remarks = list[_Splice](), list[str]()
    next_line = 0
    for number, hunk in enumerate(hunks, 1):
        search = _Search(lines, hunk, next_line, name, f"Hunk {number}")
        start, loosely = search.find_place()
        if loosely:
            remarks.append(f"hunk {number} differed in white space at line ends")
        splices += _splices(hunk, start)
        next_line = start + len(hunk.old)
    offsets = _offsets(lines)
    for splice in reversed(splices):
        first = offsets[splice.start]
        old = work.plain[first : offsets[splice.end]]
        new = "".join(f"{line}\n" for line in splice.new_lines)
        work = replace(work, text=work.replace_at([first], old, new))
    has_last_end = not lacks_last_end
    for hunk in hunks:
        if hunk.final is not None:
            has_last_end = hunk.final
    new_text = work.text if has_last_end else _without_last_end(work.text)
    return PatchedText(new_text, tuple(remarks))


def _splices(hunk: "Hunk", index: int) -> Iterable[_Splice]:
    """Yield the changes of a hunk, one for each run of lines with - and +.

    `index` is the place in the file of the hunk's first line.
    """
    start, new_lines = index, list[str]()
    # The kept line at the end closes the last run.
    for sign, text in (*hunk.rows, (" ", "")):
        if sign == "+":
            new_lines.append(text)
        elif sign == "-":
            index += 1
        else:
            has_changes = new_lines or index > start
            if has_changes:
                yield _Splice(start, index, tuple(new_lines))
            new_lines.clear()
            index += 1
            start = index


def _offsets(lines: Sequence[str]) -> list[int]:
    """Return the offset at which each line starts, and the end of the text."""
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    return offsets


def _with_file_line_ends(hunk: "Hunk", text: str) -> "Hunk":
    rows = tuple((sign, restore_invisible(line, text)) for sign, line in hunk.rows)
    return replace(hunk, rows=rows)


def _without_last_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


class _Search:
    """Finds the place of a hunk in `lines`, at or after line `start`. The names are for
    messages.
    """

    def __init__(
        self, lines: Sequence[str], hunk: "Hunk", start: int, name: str, hunk_name: str
    ) -> None:
        self._lines, self._hunk, self._start, self._name = lines, hunk, start, name
        self._hunk_name = f"{hunk_name} (line {hunk.line} of the patch)"

    def find_place(self) -> tuple[int, bool]:
        """Return the index of the line at which the hunk begins, and whether it matches only
        loosely.

        A loose match ignores white space at line ends. Raises `ToolFailed` if there is no
        single match.
        """
        hunk = self._hunk
        header_lines = self._header_lines() if hunk.headers else None
        if not hunk.old:
            return self._insertion_line(header_lines), False
        for key, loosely in ((str, False), (str.rstrip, True)):
            places = self._matching_lines(key, hunk.old, header_lines)
            if len(places) == 1:
                return places[0], loosely
            if places:
                raise ToolFailed(self._ambiguous_message(places))
        raise ToolFailed(self._missing_message())

    def _matching_lines(
        self,
        key: Callable[[str], str],
        old: Sequence[str],
        header_lines: Sequence[int] | None,
    ) -> list[int]:
        """Return the indexes at which the lines `old` begin, compared after `key` is applied.

        `header_lines` has the indexes of the lines that match the last header; None without
        headers.
        """
        lines = self._lines if key is str else [key(line) for line in self._lines]
        places = _find_starts(lines, [key(line) for line in old])
        places = [index for index in places if index >= self._start]
        if self._hunk.at_end:
            places = [index for index in places if index + len(old) == len(self._lines)]
        if header_lines is not None:
            return _first_from(places, header_lines)
        # The line number in a hunk only decides between several places.
        named_index = self._hunk.at - 1
        return [named_index] if named_index in places else places

    def _header_lines(self) -> list[int]:
        """Return the indexes of the lines that match the last header and follow the earlier
        headers.
        """
        places = [self._start - 1]  # the line before the searched ones
        for header in self._hunk.headers:
            matching = [
                index
                for index, line in enumerate(self._lines)
                if line.strip() == header.strip() and index >= self._start
            ]
            if len(places) == 1:
                places = [index for index in matching if index > places[0]]
            else:
                # The next match below each place.
                places = _first_from(matching, [index + 1 for index in places])
            if not places:
                where = " after the hunk before it" if self._start else ""
                raise ToolFailed(
                    f"{self._hunk_name}: there is no line {header!r} in {self._name}{where}. "
                    "After @@ comes a whole line of the file, or nothing."
                )
        return places

    def _insertion_line(self, header_lines: Sequence[int] | None) -> int:
        """Return the index of the line before which the lines of the hunk are inserted.

        The hunk only adds lines.
        """
        if header_lines is not None:
            places = [index + 1 for index in header_lines]
            if len(places) > 1:
                raise ToolFailed(self._ambiguous_message(places))
            return places[0]
        if not self._hunk.at:
            return len(self._lines)
        named_index = self._hunk.at - 1
        if not self._start <= named_index <= len(self._lines):
            raise ToolFailed(
                f"{self._hunk_name} adds at line {self._hunk.at}, and {self._name} has "
                f"{len(self._lines):,} lines. Give lines around it."
            )
        return named_index

    def _ambiguous_message(self, places: Sequence[int]) -> str:
        """Return the message for a hunk that fits at several indexes of lines."""
        numbers = ", ".join(str(index + 1) for index in places[:_MAX_LISTED_PLACES])
        ellipsis = ", …" if len(places) > _MAX_LISTED_PLACES else ""
        return (
            f"{self._hunk_name} fits {len(places):,} places in {self._name}, at lines {numbers}"
            f"{ellipsis}. Add lines around it, or a line above it after @@."
        )

    def _missing_message(self) -> str:
        """Return the message for a hunk that fits nowhere after the previous hunk."""
        old, whole = self._hunk.old, "\n".join(self._lines)
        places = _find_starts(self._lines, old)
        if places and self._hunk.at_end:
            return f"{self._hunk_name} stands in {self._name} at line {places[0] + 1}, not at its end."
        if places:
            return (
                f"{self._hunk_name} stands in {self._name} only at line {places[0] + 1}, before "
                "what is named above it: give hunks in the order of the file."
            )
        return not_found_message(self._hunk_name, whole, "\n".join(old), self._name)


def _first_from(places: Sequence[int], starts: Iterable[int]) -> list[int]:
    """Return, for each of `starts`, the first of the sorted `places` at or after it.

    A start after the last place is skipped.
    """
    indexes = {bisect_left(places, start) for start in starts}
    return [places[index] for index in sorted(indexes) if index < len(places)]


def _find_starts(lines: Sequence[str], old: Sequence[str]) -> list[int]:
    """Return the indexes at which all lines of `old` follow each other in `lines`."""
    old_lines = list(old)
    starts = list[int]()
    start = -1
    # `lines.index` is faster than a comparison at each line. It raises `ValueError` if no
    # further line equals the first of `old`.
    with suppress(ValueError):
        while True:
            start = lines.index(old_lines[0], start + 1)
            if lines[start : start + len(old_lines)] == old_lines:
                starts.append(start)
    return starts
