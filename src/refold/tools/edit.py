"""The tools `write_file`, `edit_file` and `multi_edit`: change one file.

Unchanged parts keep their bytes: line ends, encoding, byte order mark. A file can be overwritten
only in the version that the model last saw (`known`). If the text to be replaced is not found, the
error shows the nearest text. `place` replaces the file atomically.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Files, Real, Secrets
from refold.tools.contract import ReadRange, Reply, tool
from refold.tools.file_versions import (
    DiffText,
    compare_texts,
    digest,
    encode_like,
    read_current,
    to_diff,
)
from refold.tools.text_files import (
    EditableText,
    check_sendable,
    count_lines,
    decode_text,
    piece,
)
from refold.tools.write_checks import add_syntax_note, check_loss
from refold.values.display import Diff, Note
from refold.values.printable_names import escape_name
from refold.values.text import restore_invisible
from refold.values.tools import Effect

_NO_TEXT = DiffText("", plus=0, minus=0)
_LINE_NUMBERS_PATTERN = r"(?m)^\d+\t"
_MAX_SHOWN_LINES = 30  # of the most similar text
_MAX_LISTED_LINES = 10  # line numbers in a message
_MIN_LIKENESS_PERCENT = 55.0  # with less similarity a hint would be misleading
_MAX_ANCHORS = 5  # the number of lines compared with the longest wanted line
_MAX_COMPARED_CHARS = 20_000  # on each side


@tool(Effect.CHANGE, path="path", dry_run=True)
async def write_file(
    path: str,
    content: str,
    *,
    files: Files,
    known: Mapping[str, str],
    unread: Collection[str],
) -> Reply:
    """Create a file, or replace all of one that was read before."""
    return await to_thread.run_sync(partial(_write, path, content, files, known, unread))


@tool(Effect.CHANGE, path="path", dry_run=True)
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


def _write(
    path: str,
    content: str,
    files: Files,
    known_digests: Mapping[str, str],
    unread: Collection[str],
) -> Reply:
    """Create a file, or replace the content of a file that the model has read."""
    check_sendable(content, "content")
    real = files.real(path)
    name = files.display_name(real)
    if files.kind(real) == "nothing":
        return _create(real, name, content, files)
    before = read_current(real, files, known_digests)
    previous = decode_text(before)
    old_text = previous.plain if previous else ""
    content = restore_invisible(content, previous.text if previous else "")
    content = files.secrets(old_text, name).unmask(content)
    data, recoded = _encode_as_before(content, previous)
    if data == before:
        return _reply_unchanged(real, name, data)
    new_text = content.replace("\r\n", "\n")
    check_loss(real, name, old_text, new_text, unread)
    files.write(real, data, expect=digest(before))
    diff_text = compare_texts(old_text, new_text) if previous else _NO_TEXT
    diff = to_diff(real, diff_text, before, data, recoded)
    remark = f" The encoding was changed from {recoded}." if recoded else ""
    reply = Reply(
        f"Wrote {name}, {_line_count_text(content)} ({diff_text.count}).{remark}", (diff,)
    )
    return add_syntax_note(reply, name, old_text, new_text)


def _create(real: Real, name: str, content: str, files: Files) -> Reply:
    content = restore_invisible(content, before="")
    content = files.secrets("", name).unmask(content)
    data = content.encode()
    files.write(real, data, expect="")
    diff_text = compare_texts(before="", after=content)
    diff = Diff(escape_name(real), "created", diff_text.text, after=digest(data))
    return Reply(f"Created {name}, {_line_count_text(content)}.", (diff,))


def _edit(
    path: str, old: str, new: str, all: bool, files: Files, known_digests: Mapping[str, str]
) -> Reply:
    """Replace `old` by `new` once, or with `all` everywhere, and write the file."""
    check_sendable(new, "new")
    real = files.real(path)
    name = files.display_name(real)
    before = read_current(real, files, known_digests)
    previous = decode_text(before)
    if previous is None:
        raise ToolFailed(f"{name} is not text: edit_file cannot change it.")
    old = with_file_line_ends(old, previous.plain)
    new = with_file_line_ends(new, previous.plain)
    old, new = files.secrets(previous.plain, name).replacement(old, new)
    offsets = find_places(previous.plain, old, new, name, all=all)
    after = previous.replace_at(offsets, old, new)
    data = encode_like(previous, after, name)
    files.write(real, data, expect=digest(before))
    new_text = after.replace("\r\n", "\n")
    diff_text = compare_texts(previous.plain, new_text)
    diff = to_diff(real, diff_text, before, data)
    reply = Reply(edit_summary(previous.plain, offsets, name, diff_text.count), (diff,))
    return add_syntax_note(reply, name, previous.plain, new_text)


def _encode_as_before(content: str, original: EditableText | None) -> tuple[bytes, str]:
    """Encode `content` with the line ends and the encoding of the file that it replaces.

    `original` is the text of that file; None for binary data. The second value names a change
    of the encoding, or "".
    """
    if original is None:
        return content.encode(), "binary data to UTF-8"
    content = content.removeprefix("\ufeff") if original.mark else content
    text = content if "\r" in content else original.with_ends(content)
    try:
        return original.encode(text), ""
    except UnicodeEncodeError:  # the old encoding lacks a character
        return text.encode(), f"{original.encoding_name} to UTF-8"


def _reply_unchanged(real: Real, name: str, data: bytes) -> Reply:
    ranges = (ReadRange(escape_name(real), digest(data)),)
    return Reply(
        f"{name} has this content already; nothing was written.",
        (Note(f"{name} is as it was"),),
        ranges,
    )


def _line_count_text(content: str) -> str:
    count = count_lines(content)
    return f"{count:,} line{'' if count == 1 else 's'}"


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    old: str
    new: str
    all: bool = False


@tool(Effect.CHANGE, path="path", dry_run=True)
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
    path: str, edits: Sequence[Edit], files: Files, known_digests: Mapping[str, str]
) -> Reply:
    """Make all edits one after the other, then write the file. If one fails, write nothing."""
    real = files.real(path)
    name = files.display_name(real)
    before = read_current(real, files, known_digests)
    old = decode_text(before)
    if old is None:
        raise ToolFailed(f"{name} is not text: multi_edit cannot change it.")
    current_text = old
    count = 0
    secrets = files.secrets(old.plain, name)
    for number, edit in enumerate(edits, 1):
        try:
            current_text, times = _apply_edit(current_text, edit, name, secrets)
        except ToolFailed as error:
            raise ToolFailed(
                f"Edit {number} of {len(edits)}: {error} No edit was done."
            ) from error
        count += times
    data = encode_like(old, current_text.text, name)
    if data == before:
        raise ToolFailed(f"All edits together leave {name} as it is. No edit was done.")
    files.write(real, data, expect=digest(before))
    diff_text = compare_texts(old.plain, current_text.plain)
    extent = f"{count:,} place{'' if count == 1 else 's'}"
    diff = to_diff(real, diff_text, before, data)
    reply = Reply(f"Edited {name}: {extent} ({diff_text.count}).", (diff,))
    return add_syntax_note(reply, name, old.plain, current_text.plain)


def _apply_edit(
    text: EditableText, edit: Edit, name: str, secrets: Secrets
) -> tuple[EditableText, int]:
    """Return the text after an edit, and how many places changed."""
    check_sendable(edit.new, "new")
    old = with_file_line_ends(edit.old, text.plain)
    new = with_file_line_ends(edit.new, text.plain)
    old, new = secrets.replacement(old, new, text.plain)
    offsets = find_places(text.plain, old, new, name, all=edit.all)
    return replace(text, text=text.replace_at(offsets, old, new)), len(offsets)


def with_file_line_ends(words: str, text: str) -> str:
    """Return `words` from a model with LF as line end and with the file's invisible
    characters.

    The model saw placeholders for these characters. `text` is the text of the file.
    """
    return restore_invisible(words.replace("\r\n", "\n"), text)


def find_places(text: str, old: str, new: str, name: str, *, all: bool) -> list[int]:
    """Return the offsets of `old` in `text`. Without `all`, there must be only one.

    Raises `ToolFailed` if `old` is missing or equal to `new`, or occurs more than once without
    `all`. `name` is the file's name for messages.
    """
    if not old:
        raise ToolFailed(
            "old is empty: give the exact text to replace. To make a file, use write_file."
        )
    if old == new:
        raise ToolFailed("old and new are the same: there is nothing to do.")
    offsets = _find_all(text, old)
    if not offsets:
        raise ToolFailed(not_found_message("old", text, old, name))
    if len(offsets) > 1 and not all:
        raise ToolFailed(
            f"old occurs {len(offsets):,} times in {name}, at {line_numbers_text(text, offsets)}. "
            "Add lines around it until it is only one place, or pass all=true."
        )
    return offsets


def edit_summary(text: str, offsets: list[int], name: str, count_text: str) -> str:
    times = f"{len(offsets):,} places, " if len(offsets) > 1 else ""
    return f"Edited {name}: {times}{line_numbers_text(text, offsets)} ({count_text})."


def _find_all(text: str, old: str) -> list[int]:
    """Return the offsets of `old` in the text, without overlaps."""
    offsets = list[int]()
    offset = text.find(old)
    while offset >= 0:
        offsets.append(offset)
        offset = text.find(old, offset + len(old))
    return offsets


def line_numbers_text(text: str, offsets: list[int]) -> str:
    """Return the lines of these ascending offsets, such as "lines 3, 8, …"."""
    numbers = list[str]()
    line, last_offset = 1, 0
    for offset in offsets[:_MAX_LISTED_LINES]:
        line += text.count("\n", last_offset, offset)
        last_offset = offset
        numbers.append(str(line))
    noun = "lines" if len(offsets) > 1 else "line"
    ellipsis = ", …" if len(offsets) > _MAX_LISTED_LINES else ""
    return f"{noun} {', '.join(numbers)}{ellipsis}"


def not_found_message(parameter: str, text: str, old: str, name: str) -> str:
    """Return the message that `old`, the value of `parameter`, is not in `text`.

    It shows the most similar lines.
    """
    start_text = f"{parameter} was not found in {name}."
    unnumbered = re.sub(_LINE_NUMBERS_PATTERN, "", old)
    if unnumbered != old and unnumbered in text:
        return f"{start_text} It begins with the line numbers that read_file shows: leave them out."
    nearest = find_nearest(text, old)
    if nearest is None:
        return f"{start_text} No similar text found; read the file again."
    last = nearest.first + len(nearest.lines) - 1
    why = " It differs only in white space." if nearest.only_white_space else ""
    shown = piece(text, nearest.first, min(len(nearest.lines), _MAX_SHOWN_LINES)).text
    location = f"line {last}" if last == nearest.first else f"lines {nearest.first}-{last}"
    return f"{start_text} The nearest text is at {location}.{why}\n{shown}"


class NearestMatch(Struct, frozen=True):
    """The lines of a file that are most similar to a text. `first` is a line number."""

    first: int
    lines: tuple[str, ...]
    only_white_space: bool


def find_nearest(text: str, wanted_text: str) -> NearestMatch | None:
    """Return the lines of `text` that are most similar to `wanted_text`.

    Return None if none are similar enough. The longest wanted line is looked up first, and the
    whole text is compared only around its best matches, so the time does not grow with both
    lengths.
    """
    from rapidfuzz import fuzz, process

    lines = text.split("\n")
    wanted = wanted_text.strip("\n").split("\n")
    longest = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    anchors = process.extract(
        wanted[longest].strip(),
        [line.strip()[:_MAX_COMPARED_CHARS] for line in lines],
        scorer=fuzz.ratio,
        limit=_MAX_ANCHORS,
    )
    compared_text = "\n".join(wanted)[:_MAX_COMPARED_CHARS]
    best_start, best_likeness = -1, _MIN_LIKENESS_PERCENT
    for _, _, index in anchors:
        start = max(0, index - longest)
        window = "\n".join(lines[start : start + len(wanted)])[:_MAX_COMPARED_CHARS]
        likeness = fuzz.ratio(window, compared_text)
        if likeness > best_likeness:
            best_start, best_likeness = start, likeness
    if best_start < 0:
        return None
    nearest = tuple(lines[best_start : best_start + len(wanted)])
    only_white_space = _without_white_space(nearest) == _without_white_space(wanted)
    return NearestMatch(best_start + 1, nearest, only_white_space)


def _without_white_space(lines: Sequence[str]) -> str:
    return "".join("".join(lines).split())
