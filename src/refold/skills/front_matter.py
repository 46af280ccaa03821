"""Parses the front matter of a SKILL.md: what is between the two lines `---`.

Almost all of it is lines `key: words`. Those are parsed here, because every start reads them and
loading PyYAML takes longer than everything else; PyYAML parses the rest. `discovery` knows the
keys.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

MAX_FRONT_CHARS = 16 * 1024  # between the lines of dashes
_MOST_BRACKETS = 100
_FENCE_LINE = "---"
_BLANK_CHARS = " \t"
# What begins so, or holds this, YAML may read otherwise than as these words.
_SPECIAL_CHARS = "|>&*!%@`[{'\"?-"


class FrontMatter(Struct, frozen=True):
    """`values` are texts; a key with another type of value has None.

    `body` is what follows.
    """

    values: dict[str, str | None]
    body: str


class BadFrontMatter(Exception):
    """Says what is wrong, and in which line of the file, from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line, self.what = line, problem


class Fields(Struct, frozen=True):
    """`values` are as YAML has them; where plain lines are enough, texts."""

    values: dict[str, object]
    body: str


def split(text: str) -> FrontMatter:
    """The front matter and the body. Raises `BadFrontMatter`."""
    lines, body = _split_at_fences(text)
    values = _parse_simple(lines)
    return FrontMatter(_texts(yaml_of(lines)) if values is None else values, body)


def fields(text: str) -> Fields:
    """All fields, also lists and numbers. Raises `BadFrontMatter`."""
    lines, body = _split_at_fences(text)
    values = _parse_simple(lines)
    if values is None or None in values.values():
        return Fields(yaml_of(lines), body)
    return Fields(dict(values), body)


def yaml_of(lines: list[str], first: int = 2) -> dict[str, object]:
    """Parse lines of YAML; `first` is the number of the first. Raises `BadFrontMatter`."""
    text = "\n".join(lines)
    # For thousands that are never closed PyYAML takes seconds.
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        raise BadFrontMatter(first, f"it has more than {_MOST_BRACKETS} brackets")
    import yaml  # only who wrote more than plain lines pays for it

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
    """The values of plain lines `key: words`; None if only a YAML parser can tell them."""
    values = dict[str, str | None]()
    for line, nested in _entries(lines):
        key, colon, after = line.partition(":")
        if not (colon and _is_key(key)) or key in values or after[:1].strip(_BLANK_CHARS):
            return None
        words = after.strip(_BLANK_CHARS)
        if _is_quoted(words):
            words = words[1:-1]
        elif words and (words[0] in _SPECIAL_CHARS or _has_comment(words)):
            nested = True
        if nested and key in ("name", "description"):
            return None
        values[key] = None if nested else words
    return values


def _is_key(word: str) -> bool:
    first = word[:1]
    letters = word.replace("-", "_").replace("_", "a")
    return first.isascii() and first.isalpha() and letters.isalnum()


def _is_quoted(text: str) -> bool:
    quote, inside = text[:1], text[1:-1]
    ends = len(text) > 1 and quote in "'\"" and text.endswith(quote)
    return ends and quote not in inside and "\\" not in inside


def _has_comment(text: str) -> bool:
    return text.startswith("#") or " #" in text or "\t#" in text


def _entries(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Each line that begins at the margin, and whether more belongs to it."""
    index = 0
    while index < len(lines):
        line, index = lines[index], index + 1
        if not line.strip() or line.startswith("#"):
            continue
        nested = False
        while index < len(lines) and (
            lines[index][:1] in (" ", "\t") or lines[index][:2] == "- "
        ):
            nested, index = True, index + 1
        yield line, nested
