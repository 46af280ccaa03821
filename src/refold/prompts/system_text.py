"""Renders the system prompt from named parts, each within its share of the context window.

A part is only cut here, at the end of a line and visibly for the model; its text comes from
elsewhere. The parts have a fixed order and are returned with their sizes, for the context usage.
Pure.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Raw, Struct

from refold.journal.events.kinds import SystemPromptSet

_BETWEEN = "\n\n"
_CHARACTERS = 4  # of a token, about
_LEAST_WINDOW = 4_000  # tokens; a smaller one is treated as this
_FOREWORD = """\
What the person and the project ask of you stands in these files. Follow it. Where two \
differ, the later one holds, and what the person says to you holds over all of them. They \
cannot allow what is refused to you."""
_SHAPE = """\
When you are done, your answer must be one JSON value that matches this JSON Schema, \
and nothing else: no words before or after it.
{schema}"""
_OWN_TAG = r"(?i)<(?=[\s/]*instructions\b)"
_MOST_NAMES = 5


class Share(Struct, frozen=True):
    """How much of a window a part may fill: one `of` so many, and never more than `most`."""

    of: int
    most: int  # characters


SHARES = {
    "instructions": Share(8, 100_000),
    "memory": Share(32, 16_000),
    "skills": Share(32, 16_000),
    "agents": Share(64, 8_000),
}
SMALL_SHARES = {"instructions": 600, "memory": 200, "skills": 0, "agents": 0}  # characters
_WHERE = {"memory": "memory.md", "skills": "list_skills"}


class PromptFile(Struct, frozen=True):
    """The text of a file. `more` is how many characters of it were never read."""

    text: str
    file: str
    more: int = 0
    own: bool = False  # the person's, and not the project's


class RenderedPrompt(Struct, frozen=True):
    """The system prompt, its parts with their sizes, and what the user should know."""

    system: str
    parts: tuple[tuple[str, int], ...] = ()
    notices: tuple[str, ...] = ()


def told(parts: Iterable[tuple[str, str]], notices: tuple[str, ...] = ()) -> RenderedPrompt:
    """The parts that say something, in this order."""
    full = [(name, text.strip()) for name, text in parts if text.strip()]
    sizes = tuple((name, len(text)) for name, text in full)
    return RenderedPrompt(_BETWEEN.join(text for _, text in full), sizes, notices)


def part_of(briefed: SystemPromptSet, name: str) -> str:
    """The part of this name of a system prompt, as the model got it; "" if it has none."""
    at = 0
    for each, size in briefed.parts:
        if each == name:
            return briefed.system[at : at + size]
        at += size + len(_BETWEEN)
    return ""


def room(name: str, window: int, *, small: bool = False) -> int:
    """The characters that a part may have. A small model is slow to read: it gets little."""
    share = SHARES[name]
    tokens = max(window, _LEAST_WINDOW) // share.of
    return min(SMALL_SHARES[name] if small else share.most, tokens * _CHARACTERS)


def within(text: str, name: str, most: int) -> str:
    """The text of a part, cut at the end of a line if it is longer than `most`."""
    return _cut(text.strip(), most, _WHERE.get(name, ""))


def shape(schema: Raw | None) -> str:
    return _SHAPE.format(schema=bytes(schema).decode()) if schema is not None else ""


def instructions(pieces: Sequence[PromptFile], most: int) -> tuple[str, tuple[str, ...]]:
    """The files in their order, and sentences about those that did not fit.

    If room is short, the user's own have precedence, then the nearest.
    """
    left, wrapped, short = most - len(_FOREWORD), dict[int, str](), list[str]()
    order = sorted(range(len(pieces)), key=lambda at: (not pieces[at].own, -at))
    for at in order:
        piece = pieces[at]
        found, whole = _wrapped(piece, left)
        if found:
            wrapped[at] = found
            left -= len(found) + len(_BETWEEN)
        if not whole:
            short.append(piece.file)
    if not pieces:
        return "", ()
    missing = [pieces[at].file for at in sorted(set(order) - set(wrapped))]
    texts = [
        _FOREWORD,
        *(wrapped[at] for at in sorted(wrapped)),
        f"[… not told here: {_listed(missing)} …]" if missing else "",
    ]
    notices = (
        f"{_listed(short)}: longer than the part of the model's window that instructions "
        f"may fill ({most:,} characters), so it is told only the beginning"
    )
    return _BETWEEN.join(filter(None, texts)), (notices,) if short else ()


def _wrapped(piece: PromptFile, most: int) -> tuple[str, bool]:
    """The text between its tags, "" where there is no room; and is all that was read there?"""
    name = piece.file
    for letter, written in (("&", "&amp;"), ("<", "&lt;"), ('"', "&quot;")):
        name = name.replace(letter, written)
    before, after = f'<instructions file="{name}">\n', "\n</instructions>"
    text = re.sub(_OWN_TAG, "&lt;", piece.text.strip("\n"))
    space = most - len(before) - len(after)
    inside = _cut(text, space, piece.file, piece.more)
    whole = inside.startswith(text)
    return (f"{before}{inside}{after}" if inside else ""), whole


def _cut(text: str, most: int, where: str, unread: int = 0) -> str:
    """Whole lines of `text`, and how much more there is. "" where there is no room."""
    if len(text) <= most and not unread:
        return text
    mark = "[… {:,} characters more" + (f" in {where}" if where else "") + " …]"
    space = most - len(mark) - 16
    if space < 0:
        return ""
    kept = text if len(text) <= space else text[:space].rpartition("\n")[0] or text[:space]
    more = mark.format(len(text) - len(kept) + unread)
    return f"{kept}\n{more}" if kept else more


def _listed(files: Sequence[str]) -> str:
    more = len(files) - _MOST_NAMES
    rest = f" and {more} more" if more > 0 else ""
    return ", ".join(f"{'…' * (len(f) > 80)}{f[-80:]}" for f in files[:_MOST_NAMES]) + rest
