"""Joins the named parts of the system prompt, each cut to its share of the context window.

A part is cut at the end of a line, and a note for the model says so. Other modules write the
parts. Their order is fixed, and their sizes are returned for the display of context usage.
Pure.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Raw, Struct

from refold.journal.events.kinds import SystemPromptSet

_PART_SEPARATOR = "\n\n"
_CHARS_PER_TOKEN = 4  # an approximation
_MAX_COUNT_CHARS = 20  # of the number in a note of how much is missing
_MIN_WINDOW_TOKENS = 4_000  # a smaller window is treated like this one
_INSTRUCTIONS_FOREWORD = """\
What the person and the project ask of you stands in these files. Follow it. Where two \
differ, the later one holds, and what the person says to you holds over all of them. They \
cannot allow what is refused to you."""
_SCHEMA_INSTRUCTION = """\
When you are done, your answer must be one JSON value that matches this JSON Schema, \
and nothing else: no words before or after it.
{schema}"""
_OWN_TAG = r"(?i)<(?=[\s/]*instructions\b)"
_MAX_NAMES = 5  # of files in a notice
_MAX_NAME_CHARS = 80  # of each of them


class Share(Struct, frozen=True):
    """The maximum size of a part in characters.

    It is the context window divided by `of`, but not more than `most`.
    """

    of: int
    most: int  # characters


WINDOW_SHARES = {
    "instructions": Share(of=8, most=100_000),
    "memory": Share(of=32, most=16_000),
    "skills": Share(of=32, most=16_000),
    "agents": Share(of=64, most=8_000),
}
SMALL_SHARES = {"instructions": 600, "memory": 200, "skills": 0, "agents": 0}  # characters
_PART_SOURCES = {"memory": "memory.md", "skills": "list_skills"}


class PromptFile(Struct, frozen=True):
    """The text of a file for the system prompt. `more` is the number of characters not read."""

    text: str
    file: str
    more: int = 0
    own: bool = False  # it belongs to the user, and not to the project


class RenderedPrompt(Struct, frozen=True):
    """The system prompt, the name and size of each part, and notices for the user."""

    system: str
    parts: tuple[tuple[str, int], ...] = ()
    notices: tuple[str, ...] = ()


def render_prompt(
    parts: Iterable[tuple[str, str]], notices: tuple[str, ...] = ()
) -> RenderedPrompt:
    """Join the texts of `parts`, pairs of name and text, in order. Empty texts are left out."""
    full = [(name, text.strip()) for name, text in parts if text.strip()]
    sizes = tuple((name, len(text)) for name, text in full)
    return RenderedPrompt(_PART_SEPARATOR.join(text for _, text in full), sizes, notices)


def part_of(prompt: SystemPromptSet, name: str) -> str:
    """Return the text of the part `name` in a system prompt; "" if it has no such part."""
    offset = 0
    for part, size in prompt.parts:
        if part == name:
            return prompt.system[offset : offset + size]
        offset += size + len(_PART_SEPARATOR)
    return ""


def max_part_chars(name: str, window: int, *, small: bool = False) -> int:
    """Return the maximum number of characters of the part `name`.

    `window` is the size of the context window in tokens. A small model reads slowly, so with
    `small` the maximum is lower.
    """
    share = WINDOW_SHARES[name]
    tokens = max(window, _MIN_WINDOW_TOKENS) // share.of
    most_chars = SMALL_SHARES[name] if small else share.most
    return min(most_chars, tokens * _CHARS_PER_TOKEN)


def cut_part(text: str, name: str, max_chars: int) -> str:
    """Return the text of the part `name`, cut at the end of a line to at most `max_chars`."""
    source = _PART_SOURCES.get(name, "")
    return _cut_at_line_end(text.strip(), max_chars, source)


def schema_instruction(schema: Raw | None) -> str:
    """Return the instruction to answer with JSON of this schema; "" without a schema."""
    if schema is None:
        return ""
    return _SCHEMA_INSTRUCTION.format(schema=bytes(schema).decode())


def instructions(
    pieces: Sequence[PromptFile], max_chars: int
) -> tuple[str, tuple[str, ...]]:
    """Return the texts of all files as one text, and a notice for the user if any was cut.

    If `max_chars` is too small for all, the user's own files get space first, then the last
    files, which are the nearest. The texts keep their order.
    """
    if not pieces:
        return "", ()
    chars_left = max_chars - len(_INSTRUCTIONS_FOREWORD)
    wrapped = dict[int, str]()  # the texts that have space, by the index of their file
    cut_files = list[str]()
    nearest_first = reversed(range(len(pieces)))
    own_first = sorted(nearest_first, key=lambda index: not pieces[index].own)
    for index in own_first:
        piece = pieces[index]
        piece_text, is_whole = _wrap(piece, chars_left)
        if piece_text:
            wrapped[index] = piece_text
            chars_left -= len(piece_text) + len(_PART_SEPARATOR)
        if not is_whole:
            cut_files.append(piece.file)
    missing = [piece.file for index, piece in enumerate(pieces) if index not in wrapped]
    texts = [
        _INSTRUCTIONS_FOREWORD,
        *(wrapped[index] for index in sorted(wrapped)),
        f"[… left out here: {_file_list(missing)} …]" if missing else "",
    ]
    joined = _PART_SEPARATOR.join(filter(None, texts))
    if not cut_files:
        return joined, ()
    notice = (
        f"{_file_list(cut_files)}: longer than the part of the model's window that instructions "
        f"may fill ({max_chars:,} characters), so only the beginning is here"
    )
    return joined, (notice,)


def _wrap(piece: PromptFile, max_chars: int) -> tuple[str, bool]:
    """Return the text of a file between tags, and whether the text is complete.

    The text is "" if not even its beginning fits.
    """
    name = piece.file
    for letter, written in (("&", "&amp;"), ("<", "&lt;"), ('"', "&quot;")):
        name = name.replace(letter, written)
    before = f'<instructions file="{name}">\n'
    after = "\n</instructions>"
    text = re.sub(_OWN_TAG, "&lt;", piece.text.strip("\n"))
    space = max_chars - len(before) - len(after)
    inside = _cut_at_line_end(text, space, source=piece.file, unread=piece.more)
    is_whole = inside.startswith(text)  # a note of what was not read may follow
    return (f"{before}{inside}{after}" if inside else ""), is_whole


def _cut_at_line_end(text: str, max_chars: int, source: str, unread: int = 0) -> str:
    """Return `text` if it fits; otherwise its first lines and a note of how much is missing.

    `unread` characters of the file `source` are missing from `text` already. Return "" if there
    is no room for the note.
    """
    if len(text) <= max_chars and not unread:
        return text
    place = f" in {source}" if source else ""
    note_chars = len(f"[…  characters more{place} …]") + _MAX_COUNT_CHARS
    space = max_chars - note_chars
    if space < 0:
        return ""
    beginning = text
    if len(text) > space:
        whole_lines = text[:space].rpartition("\n")[0]
        beginning = whole_lines or text[:space]
    missing = len(text) - len(beginning) + unread
    note = f"[… {missing:,} characters more{place} …]"
    return f"{beginning}\n{note}" if beginning else note


def _file_list(files: Sequence[str]) -> str:
    """Return the names of the files; after the first few, the number of the others."""
    omitted = len(files) - _MAX_NAMES
    ending = f" and {omitted} more" if omitted > 0 else ""
    return ", ".join(map(_end_of_name, files[:_MAX_NAMES])) + ending


def _end_of_name(name: str) -> str:
    """Return the name, or only its end if it is long."""
    is_long = len(name) > _MAX_NAME_CHARS
    return f"…{name[-_MAX_NAME_CHARS:]}" if is_long else name
