"""Renders the system prompt from named parts, each within its share of the context window.

A part is only cut here, at the end of a line and visibly for the model; its text comes from
elsewhere. The parts have a fixed order and are returned with their sizes, for the context usage.
Pure.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Raw, Struct

from refold.journal.events.kinds import SystemPromptSet

_PART_SEPARATOR = "\n\n"
_CHARS_PER_TOKEN = 4  # of a token, about
_MIN_WINDOW_TOKENS = 4_000  # a smaller one is treated as this
_INSTRUCTIONS_FOREWORD = """\
What the person and the project ask of you stands in these files. Follow it. Where two \
differ, the later one holds, and what the person says to you holds over all of them. They \
cannot allow what is refused to you."""
_SCHEMA_INSTRUCTION = """\
When you are done, your answer must be one JSON value that matches this JSON Schema, \
and nothing else: no words before or after it.
{schema}"""
_OWN_TAG = r"(?i)<(?=[\s/]*instructions\b)"
_MAX_NAMES = 5


class Share(Struct, frozen=True):
    """How much of a window a part may fill: one part in `of`, and at most `most`."""

    of: int
    most: int  # characters


WINDOW_SHARES = {
    "instructions": Share(8, 100_000),
    "memory": Share(32, 16_000),
    "skills": Share(32, 16_000),
    "agents": Share(64, 8_000),
}
SMALL_SHARES = {"instructions": 600, "memory": 200, "skills": 0, "agents": 0}  # characters
_PART_SOURCES = {"memory": "memory.md", "skills": "list_skills"}


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


def render_prompt(
    parts: Iterable[tuple[str, str]], notices: tuple[str, ...] = ()
) -> RenderedPrompt:
    """Join the parts that are not empty, in this order."""
    full = [(name, text.strip()) for name, text in parts if text.strip()]
    sizes = tuple((name, len(text)) for name, text in full)
    return RenderedPrompt(_PART_SEPARATOR.join(text for _, text in full), sizes, notices)


def part_of(prompt: SystemPromptSet, name: str) -> str:
    """The part of this name of a system prompt, as the model got it; "" if it has none."""
    offset = 0
    for part, size in prompt.parts:
        if part == name:
            return prompt.system[offset : offset + size]
        offset += size + len(_PART_SEPARATOR)
    return ""


def max_part_chars(name: str, window: int, *, small: bool = False) -> int:
    """The characters that a part may have. A small model is slow to read: it gets little."""
    share = WINDOW_SHARES[name]
    tokens = max(window, _MIN_WINDOW_TOKENS) // share.of
    return min(SMALL_SHARES[name] if small else share.most, tokens * _CHARS_PER_TOKEN)


def cut_part(text: str, name: str, max_chars: int) -> str:
    """The text of a part, cut at the end of a line if it is longer than `max_chars`."""
    return _cut_at_line_end(text.strip(), max_chars, _PART_SOURCES.get(name, ""))


def shape(schema: Raw | None) -> str:
    return (
        _SCHEMA_INSTRUCTION.format(schema=bytes(schema).decode())
        if schema is not None
        else ""
    )


def instructions(
    pieces: Sequence[PromptFile], max_chars: int
) -> tuple[str, tuple[str, ...]]:
    """The files in their order, and sentences about those that did not fit.

    If room is short, the user's own have precedence, then the nearest.
    """
    left, wrapped, short = (
        max_chars - len(_INSTRUCTIONS_FOREWORD),
        dict[int, str](),
        list[str](),
    )
    order = sorted(range(len(pieces)), key=lambda at: (not pieces[at].own, -at))
    for index in order:
        piece = pieces[index]
        piece_text, whole = _wrap(piece, left)
        if piece_text:
            wrapped[index] = piece_text
            left -= len(piece_text) + len(_PART_SEPARATOR)
        if not whole:
            short.append(piece.file)
    if not pieces:
        return "", ()
    missing = [pieces[index].file for index in sorted(set(order) - set(wrapped))]
    texts = [
        _INSTRUCTIONS_FOREWORD,
        *(wrapped[index] for index in sorted(wrapped)),
        f"[… left out here: {_file_list(missing)} …]" if missing else "",
    ]
    notices = (
        f"{_file_list(short)}: longer than the part of the model's window that instructions "
        f"may fill ({max_chars:,} characters), so only the beginning is here"
    )
    return _PART_SEPARATOR.join(filter(None, texts)), (notices,) if short else ()


def _wrap(piece: PromptFile, max_chars: int) -> tuple[str, bool]:
    """The text between its tags, "" where there is no room; and whether all of it fits."""
    name = piece.file
    for letter, written in (("&", "&amp;"), ("<", "&lt;"), ('"', "&quot;")):
        name = name.replace(letter, written)
    before, after = f'<instructions file="{name}">\n', "\n</instructions>"
    text = re.sub(_OWN_TAG, "&lt;", piece.text.strip("\n"))
    space = max_chars - len(before) - len(after)
    inside = _cut_at_line_end(text, space, piece.file, piece.more)
    whole = inside.startswith(text)
    return (f"{before}{inside}{after}" if inside else ""), whole


def _cut_at_line_end(text: str, max_chars: int, source: str, unread: int = 0) -> str:
    """Whole lines of `text`, and how much more there is. "" where there is no room."""
    if len(text) <= max_chars and not unread:
        return text
    mark = "[… {:,} characters more" + (f" in {source}" if source else "") + " …]"
    space = max_chars - len(mark) - 16
    if space < 0:
        return ""
    beginning = (
        text if len(text) <= space else text[:space].rpartition("\n")[0] or text[:space]
    )
    note = mark.format(len(text) - len(beginning) + unread)
    return f"{beginning}\n{note}" if beginning else note


def _file_list(files: Sequence[str]) -> str:
    omitted = len(files) - _MAX_NAMES
    ending = f" and {omitted} more" if omitted > 0 else ""
    return ", ".join(f"{'…' * (len(f) > 80)}{f[-80:]}" for f in files[:_MAX_NAMES]) + ending
