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
from refold.tools.file_versions import DiffText, change, changed, current, digest, encoded
from refold.tools.text_files import EditableText, check_sendable, piece, written
from refold.tools.write_checks import add_syntax_note, check_loss
from refold.values.display import Diff, Note
from refold.values.printable_names import escaped
from refold.values.text import restored
from refold.values.tools import Effect

_NO_TEXT = DiffText("", 0, 0)
_NUMBERS = r"(?m)^\d+\t"
_SHOWN = 30  # lines of the nearest text
_NAMED = 10  # line numbers in a sentence
_GOOD_ENOUGH = 55.0  # per cent; below this a hint misleads
_ANCHORS = 5  # lines most like the longest line wanted
_COMPARED = 20_000  # characters of each side


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
    known: Mapping[str, str],
    unread: Collection[str],
) -> Reply:
    check_sendable(content, "content")
    real = files.real(path)
    name = files.called(real)
    if files.kind(real) == "nothing":
        content = restored(content, "")
        content = files.secrets("", name).restored(content)
        data = content.encode()
        files.write(real, data, expect="")
        made = change("", content)
        diff = Diff(escaped(real), "created", made.text, "", digest(data))
        return Reply(f"Created {name}, {_lines(content)}.", (diff,))
    before = current(real, files, known)
    was = written(before)
    content = restored(content, was.text if was else "")
    content = files.secrets(was.plain if was else "", name).restored(content)
    data, recoded = _as_before(content, was)
    if data == before:
        return _unchanged(real, name, data)
    old, new = was.plain if was else "", content.replace("\r\n", "\n")
    check_loss(real, name, old, new, unread)
    files.write(real, data, expect=digest(before))
    made = change(old, new) if was else _NO_TEXT
    diff = changed(real, made, before, data, recoded)
    said = f" The encoding was changed from {recoded}." if recoded else ""
    reply = Reply(f"Wrote {name}, {_lines(content)} ({made.count}).{said}", (diff,))
    return add_syntax_note(reply, name, old, new)


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
    old, new = files.secrets(was.plain, name).replacement(old, new)
    found = places(was.plain, old, new, name, all=all)
    after = was.replaced(found, old, new)
    data = encoded(was, after, name)
    files.write(real, data, expect=digest(before))
    text = after.replace("\r\n", "\n")
    made = change(was.plain, text)
    diff = changed(real, made, before, data)
    reply = Reply(result(was.plain, found, name, made.count), (diff,))
    return add_syntax_note(reply, name, was.plain, text)


def _as_before(content: str, was: EditableText | None) -> tuple[bytes, str]:
    """`content` with the line ends and the encoding of the file it replaces.

    With it comes which encoding became which, or "".
    """
    if was is None:
        return content.encode(), "binary data to UTF-8"
    content = content.removeprefix("\ufeff") if was.mark else content
    text = content if "\r" in content else was.with_ends(content)
    try:
        return was.encoded(text), ""
    except UnicodeEncodeError:  # the old encoding has no such letter; UTF-8 has all
        return text.encode(), f"{was.encoding_name} to UTF-8"


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
    path: str, edits: Sequence[Edit], files: Files, known: Mapping[str, str]
) -> Reply:
    real = files.real(path)
    name = files.called(real)
    before = current(real, files, known)
    was = written(before)
    if was is None:
        raise ToolFailed(f"{name} is not text: multi_edit cannot change it.")
    now, count = was, 0
    secrets = files.secrets(was.plain, name)
    for number, edit in enumerate(edits, 1):
        try:
            now, times = _edited(now, edit, name, secrets)
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
    diff = changed(real, made, before, data)
    reply = Reply(f"Edited {name}: {told} ({made.count}).", (diff,))
    return add_syntax_note(reply, name, was.plain, now.plain)


def _edited(
    now: EditableText, edit: Edit, name: str, secrets: Secrets
) -> tuple[EditableText, int]:
    check_sendable(edit.new, "new")
    old, new = as_in_file(edit.old, now.plain), as_in_file(edit.new, now.plain)
    old, new = secrets.replacement(old, new, now.plain)
    found = places(now.plain, old, new, name, all=edit.all)
    return replace(now, text=now.replaced(found, old, new)), len(found)


def as_in_file(words: str, text: str) -> str:
    """Text from a model, with the line ends and invisible characters of the file."""
    return restored(words.replace("\r\n", "\n"), text)


def places(text: str, old: str, new: str, name: str, *, all: bool) -> list[int]:
    """The offset of `old` in `text`. Raises `ToolFailed` if it is missing or ambiguous."""
    if not old:
        raise ToolFailed(
            "old is empty: give the exact text that is to be replaced. "
            "To make a file, use write_file."
        )
    if old == new:
        raise ToolFailed("old and new are the same: there is nothing to do.")
    found = _all(text, old)
    if not found:
        raise ToolFailed(not_found("old", text, old, name))
    if len(found) > 1 and not all:
        raise ToolFailed(
            f"old occurs {len(found):,} times in {name}, at {at_lines(text, found)}. "
            "Add lines around it until it is only one place, or pass all=true."
        )
    return found


def result(text: str, found: list[int], name: str, changed: str) -> str:
    times = f"{len(found):,} places, " if len(found) > 1 else ""
    return f"Edited {name}: {times}{at_lines(text, found)} ({changed})."


def _all(text: str, old: str) -> list[int]:
    found = list[int]()
    at = text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def at_lines(text: str, found: list[int]) -> str:
    numbers = list[str]()
    line, counted = 1, 0
    for at in found[:_NAMED]:
        line += text.count("\n", counted, at)
        counted = at
        numbers.append(str(line))
    more = ", …" if len(found) > _NAMED else ""
    return f"line{'s' if len(found) > 1 else ''} {', '.join(numbers)}{more}"


def not_found(what: str, text: str, old: str, name: str) -> str:
    """The error that `old` (named `what`) is not in `text`, with the most similar lines."""
    said = f"{what} was not found in {name}."
    bare = re.sub(_NUMBERS, "", old)
    if bare != old and bare in text:
        return (
            f"{said} It begins with the line numbers that read_file shows: leave them out."
        )

    near = nearest(text, old)
    if near is None:
        return f"{said} No similar text found; read the file again."
    last = near.first + len(near.lines) - 1
    why = " It differs only in white space." if near.only_white_space else ""
    shown = piece(text, near.first, min(len(near.lines), _SHOWN)).text
    where = f"line {last}" if last == near.first else f"lines {near.first}-{last}"
    return f"{said} The nearest text is at {where}.{why}\n{shown}"


class NearestMatch(Struct, frozen=True):
    """`first` is a line number, from 1."""

    first: int
    lines: tuple[str, ...]
    only_white_space: bool


def nearest(text: str, wanted: str) -> NearestMatch | None:
    """The lines most like `wanted`, if any are much like it.

    Lines like the longest line wanted are looked up first, so that the time
    grows with the text and not with the text times what is wanted.
    """
    from rapidfuzz import fuzz, process

    have, want = text.split("\n"), wanted.strip("\n").split("\n")
    longest = max(range(len(want)), key=lambda at: len(want[at].strip()))
    anchors = process.extract(
        want[longest].strip(),
        [line.strip()[:_COMPARED] for line in have],
        scorer=fuzz.ratio,
        limit=_ANCHORS,
    )
    best, score = -1, _GOOD_ENOUGH
    for _, _, at in anchors:
        start = max(0, at - longest)
        window = "\n".join(have[start : start + len(want)])[:_COMPARED]
        likeness = fuzz.ratio(window, "\n".join(want)[:_COMPARED])
        if likeness > score:
            best, score = start, likeness
    if best < 0:
        return None
    found = tuple(have[best : best + len(want)])
    return NearestMatch(best + 1, found, _squeezed(found) == _squeezed(want))


def _squeezed(lines: Sequence[str]) -> str:
    return "".join("".join(lines).split())
