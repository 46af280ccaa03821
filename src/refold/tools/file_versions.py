"""Determines which version of a file the model has seen, and the diff between two versions.

A file can be changed only in the version that the model last saw. `known` has the sha256 of
that version for each file, by its printable real path; the session collects it from tool
results.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.port import Files, Real
from refold.tools.text_files import EditableText
from refold.values.display import Diff
from refold.values.printable_names import escape_name
from refold.values.text import clean


def read_current(real: Real, files: Files, known_digests: Mapping[str, str]) -> bytes:
    """Read a file that the model knows in its current version.

    Raises `ToolFailed` if the file is missing, was not read in this session, or has changed
    since.
    """
    name = files.display_name(real)
    if files.kind(real) == "nothing":
        from refold.tools.file_names import similar_names_text

        names = similar_names_text(files, real)
        hint = f" {names}" if names else ""
        raise ToolFailed(f"There is no file {name}: write_file makes one.{hint}")
    content = files.read(real)
    if escape_name(real) not in known_digests:
        raise ToolFailed(
            f"{name} was not read in this session. Read it first, then change it."
        )
    if known_digests[escape_name(real)] != digest(content):
        raise ToolFailed(
            f"{name} has changed since you last read it. Read it again, then change it."
        )
    return content


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def encode_like(original: EditableText, text: str, name: str) -> bytes:
    """Encode `text` as the file `original` is encoded.

    Raises `ToolFailed` if the encoding lacks a character. `name` is the file's name for
    messages.
    """
    try:
        return original.encode(text)
    except UnicodeEncodeError as error:
        letter = text[error.start]
        raise ToolFailed(
            f"{name} is {original.encoding_name}, which cannot hold {letter!r}. Use other "
            "characters, or replace the whole file with write_file, which makes it UTF-8."
        ) from error


class DiffText(Struct, frozen=True):
    """A diff. `text` may be shortened; `plus` and `minus` count all added and removed lines."""

    text: str
    plus: int
    minus: int

    @property
    def count(self) -> str:
        return f"+{self.plus:,} -{self.minus:,}"


def to_diff(
    real: Real, diff_text: DiffText, before: bytes, after: bytes, recoded_text: str = ""
) -> Diff:
    """Return the diff of a changed file for the user.

    `recoded_text` names a change of the encoding, or is "".
    """
    first = f"@@ the encoding was changed from {recoded_text} @@\n" if recoded_text else ""
    text = f"{first}{diff_text.text}".rstrip("\n")
    return Diff(
        escape_name(real), "changed", text, digest(before), digest(after), recoded_text
    )


_CONTEXT_LINES = 3  # lines of context
_MAX_COMPARED_LINES = 4000  # old and new lines together
_MAX_DIFF_CHARS = 20_000  # in a shown diff


def compare_texts(before: str, after: str) -> DiffText:
    """Return the diff between two texts, whose lines end with LF."""
    old, new = _lines(clean(before)), _lines(clean(after))
    equal_above = _common_length(old, new)
    equal_below = _common_length(old[equal_above:][::-1], new[equal_above:][::-1])
    removed = len(old) - equal_above - equal_below
    added = len(new) - equal_above - equal_below
    both_changed = removed > 0 and added > 0
    if both_changed and removed + added > _MAX_COMPARED_LINES:
        text = f"@@ {removed:,} lines became {added:,}: too many to show @@"
        return DiffText(text, plus=added, minus=removed)
    # Equal lines at both ends are not compared, except for the context.
    skipped_above = max(0, equal_above - _CONTEXT_LINES)
    skipped_below = max(0, equal_below - _CONTEXT_LINES)
    old_part = old[skipped_above : len(old) - skipped_below]
    new_part = new[skipped_above : len(new) - skipped_below]
    rows = list(_rows(old_part, new_part, skipped_above))
    plus = sum(row.startswith("+") for row in rows)
    minus = sum(row.startswith("-") for row in rows)
    return DiffText(_shorten(rows), plus, minus)


def _lines(text: str) -> list[str]:
    """Return the lines of a text, with a note on the last line if it has no line end."""
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    lines[-1] += "\n\\ No newline at end of file"
    return lines


def _common_length(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines at the beginning are equal."""
    for count, (old_line, new_line) in enumerate(zip(old, new, strict=False)):
        if old_line != new_line:
            return count
    return min(len(old), len(new))


def _rows(old: list[str], new: list[str], before: int) -> Iterator[str]:
    """Yield the rows of a unified diff. `before` is the number of lines above both texts."""
    from difflib import SequenceMatcher

    for hunk in SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT_LINES):
        _, old_start, _, new_start, _ = hunk[0]
        _, _, old_end, _, new_end = hunk[-1]
        old_range = _range(old_start + before, old_end - old_start)
        new_range = _range(new_start + before, new_end - new_start)
        yield f"@@ -{old_range} +{new_range} @@"
        for tag, i1, i2, j1, j2 in hunk:
            if tag == "equal":
                yield from (f" {line}" for line in old[i1:i2])
            else:
                yield from (f"-{line}" for line in old[i1:i2])
                yield from (f"+{line}" for line in new[j1:j2])


def _range(start: int, count: int) -> str:
    # In this format, an empty range is numbered by the line before it.
    return f"{start + 1 if count else start},{count}"


def _shorten(rows: list[str]) -> str:
    """Return the rows as text. Rows beyond the limit are replaced by their number."""
    length = 0
    for count, row in enumerate(rows):
        length += len(row) + 1
        if length > _MAX_DIFF_CHARS:
            ellipsis = f"@@ {len(rows) - count:,} more lines of diff @@"
            return "\n".join((*rows[:count], ellipsis))
    return "\n".join(rows)
