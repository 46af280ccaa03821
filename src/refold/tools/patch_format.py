"""Parses the text of a patch into the changes of each file.

It accepts two formats: sections between `*** Begin Patch` and `*** End Patch`, and unified
diffs. `apply_patch` finds the places of the hunks and applies them.
"""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.errors import ToolFailed

BEGIN, END = "*** Begin Patch", "*** End Patch"
_ADD, _UPDATE, _DELETE = "*** Add File:", "*** Update File:", "*** Delete File:"
_MOVE, _END_OF_FILE = "*** Move to:", "*** End of File"
_SECTION_KINDS: tuple[tuple[Literal["add", "update", "delete"], str], ...] = (
    ("add", _ADD),
    ("update", _UPDATE),
    ("delete", _DELETE),
)
_RANGE_PATTERN = r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@"

Row: TypeAlias = tuple[str, str]  # A sign " ", "+" or "-", and the line without it


class Hunk(Struct, frozen=True):
    """One change in a file: its kept, removed and added lines. `line` is its place in the
    patch.

    `headers` are lines that come somewhere before it in the file, the outermost first. `at` is
    the line number that the hunk names, or 0. `at_end` says that the hunk changes the end of
    the file. `final` says whether the last line of the file will have a line end; None means
    unchanged.
    """

    line: int
    rows: tuple[Row, ...]
    headers: tuple[str, ...] = ()
    at: int = 0
    at_end: bool = False
    final: bool | None = None

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.rows if sign != "+"]


class Section(Struct, frozen=True):
    """The changes of one file. `content` is the text of a new file."""

    kind: Literal["add", "update", "delete"]
    path: str
    moved_to: str = ""
    hunks: tuple[Hunk, ...] = ()
    content: str = ""
    executable: bool | None = None


def read_patch(patch: str) -> tuple[Section, ...]:
    """Parse a patch into sections. Raises `ToolFailed` if a part of it is not valid."""
    lines = patch.replace("\r\n", "\n").split("\n")
    starts = [index for index, line in enumerate(lines) if line.rstrip() == BEGIN]
    sections = _parse_marked(lines, starts[0] + 1) if starts else parse_unified(lines)
    if not sections:
        raise ToolFailed(
            f"The patch names no file. Write it between {BEGIN} and {END}, with "
            f"{_UPDATE} PATH, {_ADD} PATH or {_DELETE} PATH; or write a unified diff."
        )
    return sections


def without_blank_end(rows: Sequence[Row], blanks: int) -> tuple[Row, ...]:
    """Return `rows` without up to `blanks` empty context lines at the end."""
    count = len(rows)
    while blanks and count and rows[count - 1] == (" ", ""):
        count -= 1
        blanks -= 1
    return tuple(rows[:count])


def unclear_error(line: int, text: str, reason: str) -> ToolFailed:
    return ToolFailed(f"Line {line} of the patch, {text[:80]!r}, {reason}")


def _parse_marked(lines: Sequence[str], index: int) -> tuple[Section, ...]:
    """Return the sections of a patch with markers, from the line `index` to the end marker."""
    sections = list[Section]()
    while index < len(lines):
        line = lines[index].strip()
        if line == END:
            return tuple(sections)
        if not line:
            index += 1
            continue
        start = index
        index = _next_marker(lines, index + 1)
        sections.append(_section(lines, start, index))
    raise ToolFailed(f"The patch has no {END}: it was cut off. Write it again, whole.")


def _next_marker(lines: Sequence[str], index: int) -> int:
    """Return the index, from `index` on, of the line that begins a section or ends the patch.

    Without such a line, return the number of lines.
    """
    markers_in_section = (_MOVE, _END_OF_FILE)
    for i in range(index, len(lines)):
        if lines[i].startswith("*** ") and not lines[i].startswith(markers_in_section):
            return i
    return len(lines)


def _section(lines: Sequence[str], start: int, end: int) -> Section:
    """Parse the section from the line `start` up to `end`."""
    line = lines[start]
    line_number = start + 1
    kind, path = _parse_marker(line_number, line)
    body = list(enumerate(lines[start + 1 : end], line_number + 1))
    if kind == "add":
        return Section("add", path, content=_parse_added(body))
    if kind == "delete":
        for number, text in body:
            if text.strip():
                raise unclear_error(number, text, "stands after a deleted file.")
        return Section("delete", path)
    new_path = _new_path(body[0][1]) if body else ""
    hunks = _hunks(body[1:] if new_path else body)
    if not hunks and not new_path:
        raise unclear_error(line_number, line, "is followed by no change.")
    return Section("update", path, new_path, hunks)


def _parse_marker(number: int, line: str) -> tuple[Literal["add", "update", "delete"], str]:
    """Return the kind and the path in the line that begins a section."""
    for kind, marker in _SECTION_KINDS:
        if line.startswith(marker):
            if path := line.removeprefix(marker).strip():
                return kind, path
            raise unclear_error(number, line, "names no file.")
    raise unclear_error(
        number, line, f"is neither {_UPDATE} nor {_ADD} nor {_DELETE} nor {END}."
    )


def _new_path(line: str) -> str:
    """Return the path in a line such as `*** Move to: src/b.py`; "" in another line."""
    return line.removeprefix(_MOVE).strip() if line.startswith(_MOVE) else ""


def _parse_added(body: Sequence[tuple[int, str]]) -> str:
    """Return the content of a new file from its lines, each with a + before it."""
    while body and not body[-1][1]:
        body = body[:-1]
    for number, text in body:
        if text and not text.startswith("+"):
            raise unclear_error(
                number, text, "must begin with +: every line of a new file does."
            )
    return "".join(f"{text[1:]}\n" for _, text in body)


def _hunks(body: Sequence[tuple[int, str]]) -> tuple[Hunk, ...]:
    """Return the hunks of a section. `body` has its lines with their numbers in the patch."""
    hunks, headers, rows = list[Hunk](), list[str](), list[Row]()
    hunk_start = 0  # the line in the patch
    blanks = 0  # empty lines at the end of `rows`

    def close(*, at_end: bool = False) -> None:
        nonlocal hunk_start, blanks
        hunk_rows = tuple(rows) if at_end else without_blank_end(rows, blanks)
        if hunk_rows:
            hunks.append(Hunk(hunk_start, hunk_rows, tuple(headers), at_end=at_end))
            headers.clear()
        rows.clear()
        blanks = 0
        # Headers without a hunk belong to the next one.
        if not headers:
            hunk_start = 0

    for number, line in body:
        if line.startswith("@@"):
            close()
            hunk_start = hunk_start or number
            if header := _header(line):
                headers.append(header)
        elif line.startswith(_END_OF_FILE):
            close(at_end=True)
        elif not line.startswith("\\"):  # skip "\ No newline at end of file"
            hunk_start = hunk_start or number
            rows.append(_row(number, line))
            blanks = 0 if line else blanks + 1
    close()
    if headers:
        raise ToolFailed(
            f"The hunk at line {hunk_start} of the patch, {headers[0][:80]!r}, has no lines: "
            "after @@ come lines that begin with a space, + or -."
        )
    return tuple(hunks)


def _header(line: str) -> str:
    """Return the text after `@@`, without line numbers such as `-1,2 +1,3 @@`."""
    text = line.removeprefix("@@").strip()
    return re.sub(f"^{_RANGE_PATTERN}", "", text).strip()


def _row(number: int, line: str) -> Row:
    if line and line[0] not in " +-":
        raise unclear_error(number, line, "must begin with a space, + or -.")
    return (line[:1] or " ", line[1:])


_HEAD_PATTERN = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NO_FILE = "/dev/null"
_SAME_NAME = re.compile(r"diff --git a/(.*) b/\1")
_UNKNOWN_COUNT = 1_000_000_000  # the number of lines is unknown


class _File(Struct):
    """One file of a unified diff while it is parsed: its names before and after the change, and
    hunks.

    A name is None if the file does not exist then, and "" until it is known.
    """

    line: int
    old: str | None = ""
    new: str | None = ""
    moves: bool = False
    executable: bool | None = None
    hunks: list[Hunk] = []


def parse_unified(lines: Sequence[str]) -> tuple[Section, ...]:
    """Return the sections of a unified diff, such as `git diff` prints."""
    files = list[_File]()
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("diff --git "):
            same_name = _SAME_NAME.fullmatch(line)
            name = same_name[1] if same_name else ""
            files.append(_File(index + 1, name, name))
        elif _is_file_header(lines, index):
            follows_git_line = (
                files and not files[-1].hunks and _begins_with_git_line(files[-1], lines)
            )
            if not follows_git_line:
                files.append(_File(index + 1))
            old_name, new_name = line[4:], lines[index + 1][4:]
            files[-1].old, files[-1].new = _file_names(old_name, new_name)
            index += 1
        elif files and line.startswith("@@"):
            hunk, index = _hunk(lines, index)
            files[-1].hunks.append(hunk)
            continue
        elif files and not files[-1].hunks and _read_extended_header(line, files[-1]):
            pass  # the call has stored the facts of this line
        elif files and line[:1] in ("+", "-") and line.strip() != "--":
            # A line `--` begins the signature of a patch in a mail.
            raise unclear_error(index + 1, line, "stands in no hunk: those begin with @@.")
        index += 1
    return tuple(_diff_section(file) for file in files)


def _begins_with_git_line(file: _File, lines: Sequence[str]) -> bool:
    return lines[file.line - 1].startswith("diff --git ")


def _is_file_header(lines: Sequence[str], index: int) -> bool:
    after = lines[index + 1] if index + 1 < len(lines) else ""
    return lines[index].startswith("--- ") and after.startswith("+++ ")


def _read_extended_header(line: str, file: _File) -> bool:
    """Read a line of git before the first hunk of a file. Return False for any other line.

    A file of mode 755 can be executed.
    """
    first_words = " ".join(line.split(" ")[:2])
    match first_words:
        case "rename from":
            file.old, file.moves = _name(line[len("rename from ") :]), True
        case "rename to":
            file.new, file.moves = _name(line[len("rename to ") :]), True
        case "new file":
            file.old, file.executable = None, line.endswith("755") or None
        case "deleted file":
            file.new = None
        case "new mode":
            file.executable = line.endswith("755")
        case "copy from" | "GIT binary" | "Binary files":
            raise unclear_error(
                file.line, line, "cannot be applied: change that file another way."
            )
        case _:
            return False
    if line.startswith("new file mode 12"):
        raise unclear_error(
            file.line, line, "makes a symbolic link: use bash and ln for that."
        )
    return True


def _file_names(old: str, new: str) -> tuple[str | None, str | None]:
    """Return both names of a file without `a/` and `b/`; None for `/dev/null`."""
    first, second = _name(old), _name(new)
    has_a = first is None or first.startswith("a/")
    has_b = second is None or second.startswith("b/")
    if not (has_a and has_b):
        return first, second
    return first and first.removeprefix("a/"), second and second.removeprefix("b/")


def _name(text: str) -> str | None:
    """Return the name of the file in a line of a diff; None for `/dev/null`."""
    text = text.partition("\t")[0].strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        # git quotes unusual names, and writes bytes as octal numbers: "caf\303\251".
        unquoted = re.sub(r'\\(["\\])', r"\1", text[1:-1])
        encoded_name = re.sub(
            rb"\\([0-3][0-7]{2})", lambda m: bytes([int(m[1], 8)]), unquoted.encode()
        )
        text = encoded_name.decode(errors="surrogateescape")
    return None if text == _NO_FILE else text


def _hunk(lines: Sequence[str], index: int) -> tuple[Hunk, int]:
    """Parse the hunk that begins at `index`. Return the hunk, and the index of the line after
    it.
    """
    head_line, head_number = lines[index], index + 1
    head = _HEAD_PATTERN.match(head_line)
    file_line = int(head[1]) if head else 0
    # How many old and new lines are still to come.
    old_left = int(head[2] or 1) if head else _UNKNOWN_COUNT
    new_left = int(head[3] or 1) if head else _UNKNOWN_COUNT
    rows = list[Row]()
    blanks = 0  # empty lines at the end of `rows`
    old_lacks_end = new_lacks_end = False  # of the last line
    index += 1
    while index < len(lines) and not _is_hunk_end(lines, index, old_left, new_left):
        line = lines[index]
        sign = line[:1] or " "
        if sign == "\\":  # "\\ No newline at end of file" is about the line before it
            last_sign = rows[-1][0] if rows else " "
            old_lacks_end |= last_sign != "+"
            new_lacks_end |= last_sign != "-"
        else:
            rows.append((sign, line[1:]))
            old_left -= sign != "+"
            new_left -= sign != "-"
            blanks = 0 if line else blanks + 1
        index += 1
    has_final_line_end: bool | None = None  # as before the change
    if old_lacks_end or new_lacks_end:
        has_final_line_end = not new_lacks_end
    is_complete = max(old_left, new_left) <= 0
    hunk_rows = tuple(rows) if is_complete else without_blank_end(rows, blanks)
    if not hunk_rows:
        raise unclear_error(head_number, head_line, "is followed by no lines.")
    # A hunk that only adds lines has the number of the line before it.
    if head and all(sign == "+" for sign, _ in hunk_rows):
        file_line += 1
    return Hunk(head_number, hunk_rows, at=file_line, final=has_final_line_end), index


def _is_hunk_end(lines: Sequence[str], index: int, old_left: int, new_left: int) -> bool:
    """Whether the line at `index` comes after the end of the hunk.

    `old_left` and `new_left` are the numbers of lines that are still missing in the hunk.
    """
    line = lines[index]
    is_complete = max(old_left, new_left) <= 0
    if line.startswith("\\"):
        return False
    if not line:
        return is_complete or not any(lines[index:])
    if line == "-- ":  # it ends a patch in a mail
        return is_complete
    if line[0] not in " +-":
        return True
    if not _is_file_header(lines, index):
        return False
    # These are either two lines of the file that look like names, or the next file.
    is_count_unknown = old_left >= _UNKNOWN_COUNT // 2
    if is_count_unknown or min(old_left, new_left) < 1:
        return True
    hunk_follows = index + 2 < len(lines) and lines[index + 2].startswith("@@")
    return hunk_follows and max(old_left, new_left) > 1


def _diff_section(file: _File) -> Section:
    """Return the section for one file of a unified diff.

    A new file has no old name (None), and a deleted file has no new name. Raises `ToolFailed`
    if the names are missing, or differ without a move, or if nothing changes.
    """
    old, new = file.old, file.new
    has_no_name = old is None and new is None
    if old == "" or new == "" or has_no_name:
        raise ToolFailed(f"At line {file.line} of the patch no file is named.")
    hunks = tuple(file.hunks)
    if new is None:
        return Section("delete", old or "")
    if old is None:
        return _new_file_section(new, hunks, file)
    is_renamed = old != new
    if is_renamed and not file.moves:
        raise ToolFailed(
            f"At line {file.line} of the patch two files are named, {old} and {new}: "
            "write the same name twice, or `rename from` and `rename to` for a move."
        )
    if not hunks and not is_renamed and file.executable is None:
        raise ToolFailed(f"At line {file.line} of the patch {new} is named, and no change.")
    new_path = new if is_renamed else ""
    return Section("update", old, new_path, hunks, executable=file.executable)


def _new_file_section(path: str, hunks: Sequence[Hunk], file: _File) -> Section:
    """Return the section for a new file, whose hunks have only added lines."""
    rows = [row for hunk in hunks for row in hunk.rows]
    if any(sign != "+" for sign, _ in rows):
        raise ToolFailed(
            f"At line {file.line} of the patch {path} is new: it has only + lines."
        )
    content = "".join(f"{text}\n" for _, text in rows)
    if any(hunk.final is False for hunk in hunks):
        content = content.removesuffix("\n")
    return Section("add", path, content=content, executable=file.executable)
