"""Parses the front matter of a SKILL.md: the text between its first two lines `---`.

Most front matter consists of lines `key: words`. This module parses these itself, because they
are read at every start, and loading PyYAML would take longer than everything else. PyYAML
parses all other front matter. `discovery` interprets the keys.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

MAX_FRONT_CHARS = 16 * 1024  # between the lines of dashes
_MOST_BRACKETS = 100
_FENCE_LINE = "---"
_BLANK_CHARS = " \t"
# If the text begins with one of these, or contains one, YAML may not read it as plain
# words.
_SPECIAL_CHARS = "|>&*!%@`[{'\"?-"


class FrontMatter(Struct, frozen=True):
    """The front matter of a file as texts, and `body`, the text after it.

    In `values`, a key whose value is not a text has None.
    """

    values: dict[str, str | None]
    body: str


class BadFrontMatter(Exception):
    """Raised for invalid front matter, with the reason and the line number in the file."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line, self.what = line, problem


class Fields(Struct, frozen=True):
    """The front matter of a file with all types of YAML, and `body`, the text after it.

    If all its lines are plain `key: words`, all `values` are texts.
    """

    values: dict[str, object]
    body: str


def split(text: str) -> FrontMatter:
    """Return the front matter as texts, and the text after it. Raises `BadFrontMatter`."""
    lines, body = _split_at_fences(text)
    values = _parse_simple(lines)
    if values is None:
        values = _texts(yaml_of(lines))
    return FrontMatter(values, body)


def fields(text: str) -> Fields:
    """Return the front matter with lists and numbers, and the text after it.

    Raises `BadFrontMatter`.
    """
    lines, body = _split_at_fences(text)
    values = _parse_simple(lines)
    if values is None or None in values.values():
        return Fields(yaml_of(lines), body)
    return Fields(dict(values), body)


def yaml_of(lines: list[str], first: int = 2) -> dict[str, object]:
    """Return the mapping that these lines of YAML contain. Raises `BadFrontMatter`.

    `first` is the number of the first line in the file.
    """
    text = "\n".join(lines)
    # PyYAML takes seconds for thousands of brackets that are never closed.
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        raise BadFrontMatter(first, f"it has more than {_MOST_BRACKETS} brackets")
    import yaml  # imported late: only for files that are not plain lines

    try:
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + first if mark else first
        raise BadFrontMatter(line, f"this is not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        message = " ".join(str(error).split())[:200]
        raise BadFrontMatter(first, f"this is not YAML: {message}") from error
    if not isinstance(data, dict):
        raise BadFrontMatter(first, "there are no lines `key: words`")
    values = cast("dict[Any, object]", data)
    return {key: value for key, value in values.items() if isinstance(key, str)}


def _split_at_fences(text: str) -> tuple[list[str], str]:
    """Return the lines between the two lines ---, and the text after them.

    Raises `BadFrontMatter` if a line --- is missing, or the front matter is too long.
    """
    first, _, rest = text.removeprefix("\ufeff").replace("\r\n", "\n").partition("\n")
    if first.rstrip() != _FENCE_LINE:
        raise BadFrontMatter(1, "the file does not begin with a line ---")
    match = re.search(r"^---[ \t]*$", rest, re.MULTILINE)
    if match is None:
        raise BadFrontMatter(1, "the front matter has no end: a line --- is missing")
    if match.start() > MAX_FRONT_CHARS:
        raise BadFrontMatter(
            1, f"the front matter has more than {MAX_FRONT_CHARS:,} characters"
        )
    return rest[: match.start()].splitlines(), rest[match.end() :].strip("\n")


def _texts(values: Mapping[str, object]) -> dict[str, str | None]:
    return {key: v if isinstance(v, str) else None for key, v in values.items()}


def _parse_simple(lines: list[str]) -> dict[str, str | None] | None:
    """Return the keys and texts of lines `key: words`; None if they need a YAML parser.

    A text that is not plain words is None. The name and the description are needed, so if one
    of them is not plain words, a YAML parser must read all lines.
    """
    values = dict[str, str | None]()
    for line, has_nested_lines in _entries(lines):
        key, colon, after = line.partition(":")
        has_blank_or_end = not after[:1].strip(_BLANK_CHARS)
        is_entry = bool(colon) and has_blank_or_end and _is_key(key)
        if not is_entry or key in values:
            return None
        words = after.strip(_BLANK_CHARS)
        is_plain = not has_nested_lines
        if _is_quoted(words):
            words = words[1:-1]
        elif words and (words[0] in _SPECIAL_CHARS or _has_comment(words)):
            is_plain = False
        if not is_plain and key in ("name", "description"):
            return None
        values[key] = words if is_plain else None
    return values


def _is_key(word: str) -> bool:
    """Return whether the word is an ASCII letter with letters, digits, "-" or "_" after it."""
    first = word[:1]
    without_signs = word.replace("-", "").replace("_", "")
    return first.isascii() and first.isalpha() and without_signs.isalnum()


def _is_quoted(text: str) -> bool:
    """Return whether the text is in quotes, without the same quote or a backslash inside."""
    quote, inside = text[:1], text[1:-1]
    ends = len(text) > 1 and quote in "'\"" and text.endswith(quote)
    return ends and quote not in inside and "\\" not in inside


def _has_comment(text: str) -> bool:
    return text.startswith("#") or " #" in text or "\t#" in text


def _entries(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line that is not indented, and whether lines that belong to it follow."""
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if not line.strip() or line.startswith("#"):
            continue
        first_nested = index
        while index < len(lines) and lines[index].startswith((" ", "\t", "- ")):
            index += 1
        yield line, index > first_nested
