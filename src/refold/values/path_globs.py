"""Translates path patterns in the syntax of git to regular expressions that do not backtrack.

`*` and `?` match within a name, `[a-c]`, `[!a-c]` and `[[:digit:]]` one character of it, `**`
across folders, and `\\` takes the next character literally. Rules, ignore files and globs come
from outside: a repository brings them, or a model writes them. So the time for a pattern must
be bounded: the text between two stars is searched once, and its first occurrence is used, which
is as good as any later one. Braces are not patterns of git; `alternatives` expands them.

git itself backtracks, so `programs.start_bounded` ends git and ripgrep when refold ends. A
rule with braces is refused, because it would seem to protect files that it does not match.
"""

import re
import sys
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

MAX_PATTERN_CHARS = 4096  # the same limit as for a path
_CHARACTER_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": "!-/:-@\\[-`{-~", "space": " \\t\\n\\r\\f\\v", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip
_LOOSE_PATTERN = re.compile(r"(?s)\*\*/|\*+|\?|\[[!^]?\]?(?:\[:[a-z]*:\]|[^\]])*\]|\\.|.")
_CLASS_PATTERN = re.compile(r"\[:([a-z]*):\]")
_WILDCARD_PATTERN = re.compile(r"[*?\[\]\\{}]")

# Groups that are not searched again came with Python 3.11. Without them a pattern matches
# the same, but may take long. Only the program that serves a workspace on another machine
# may run on an older Python.
_ATOMIC = "(?>" if sys.version_info >= (3, 11) else "(?:"

Wild: TypeAlias = Literal["*", "**", "**/"]


class _Token(Struct, frozen=True):
    """A part of a pattern: a character or a wildcard. The field that does not apply is "".

    `one` is a regular expression for the character, and `wild` the stars of the wildcard.
    """

    one: str = ""
    wild: Wild | Literal[""] = ""


def regex(pattern: str, *, across: bool = False) -> str:
    """Return a regular expression for whole paths without a slash at their beginning.

    `**` crosses folders if it is a whole part of the path, and with `across` everywhere. Raises
    `ValueError`, which says what is wrong with the pattern.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(
            f"it has {len(pattern):,} characters, {MAX_PATTERN_CHARS:,} are most"
        )
    tokens = _parse_tokens(pattern, across=across)
    *pieces, last_piece = _pieces(tokens)
    parts = list[str]()
    # A piece is matched at the first possible position, and not tried again at a later one.
    for wildcard, runs in pieces:
        text = _match_at_first_place(runs)
        if wildcard == "**":
            text = f"{_ATOMIC}.*?{text})"
        elif wildcard == "**/":
            text = f"{_ATOMIC}(?:.*?/)??{text})"
        parts.append(text)
    # The last piece must end where the path ends.
    wildcard, runs = last_piece
    text = _match_to_end(runs)
    if wildcard == "**":
        text = f".*{text}"
    elif wildcard == "**/":
        text = f"(?:.*/)?{text}"
    parts.append(text)
    return "".join(parts)


def literal_name(pattern: str) -> str | None:
    """Return the only path that the pattern matches; None if it may match several."""
    # An even number of backslashes before a wildcard does not escape it.
    has_wildcard = re.search(r"(?<!\\)(?:\\\\)*[*?\[]", pattern)
    if has_wildcard:
        return None
    return re.sub(r"(?s)\\(.)", r"\1", pattern)


def escape_pattern(name: str) -> str:
    """Return a pattern that matches exactly this name."""
    return _WILDCARD_PATTERN.sub(r"\\\g<0>", name)


def split_loosely(pattern: str) -> Iterator[str]:
    """Yield the pattern's characters, with `*` and `?` for every wildcard.

    The yielded pattern matches at least what `pattern` matches. It is used for names that are
    only partly known.
    """
    for token in _LOOSE_PATTERN.finditer(pattern):
        text = token[0]
        if text.startswith("*"):
            yield "*"
        elif text == "?" or (len(text) > 1 and text[0] == "["):
            yield "?"
        else:
            char = text[-1]  # a backslash may precede it
            yield f"[{char}]" if char in "*?[" else char


def _pieces(tokens: Iterator[_Token]) -> Iterator[tuple[str, list[str]]]:
    """Yield the pieces between `**`: the wildcard before each piece, and its runs.

    A run is a regular expression without wildcards; a `*` is between two runs.
    """
    wildcard, runs = "", [""]
    for token in tokens:
        if not token.wild:
            runs[-1] += token.one
        elif token.wild == "*":
            runs.append("")
        elif wildcard and runs == [""]:
            # Nothing is between this wildcard and the one before, so they are one: `**` if one
            # of them is.
            wildcard = "**" if token.wild == "**" else wildcard
        else:
            yield wildcard, runs
            wildcard, runs = token.wild, [""]
    yield wildcard, runs


def _match_at_first_place(runs: list[str]) -> str:
    """Return a regular expression that matches each run at its first possible position."""
    first, *rest = runs
    return first + "".join(f"{_ATOMIC}[^/]*?{run})" for run in rest if run)


def _match_to_end(runs: list[str]) -> str:
    """Return a regular expression that matches the runs, the last one at the end of the
    path.
    """
    first, *rest = runs
    if not rest:
        return first
    *middle, last = rest
    return _match_at_first_place([first, *middle]) + f"[^/]*{last}"


def _parse_tokens(pattern: str, *, across: bool) -> Iterator[_Token]:
    """Yield the tokens of the pattern. Raises `ValueError` at a backslash that ends it."""
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "*":
            end = position
            while pattern[end : end + 1] == "*":
                end += 1
            stars, position = _parse_stars(pattern, position, end, across=across)
            yield stars
        elif char == "[":
            character_class, position = _parse_class(pattern, position)
            yield _Token(character_class)
        elif char == "\\":
            if position + 1 == len(pattern):
                raise ValueError("it ends with a backslash, which takes nothing literally")
            yield _Token(re.escape(pattern[position + 1]))
            position += 2
        else:
            any_but_slash = "[^/]"
            yield _Token(any_but_slash if char == "?" else re.escape(char))
            position += 1


def _parse_stars(pattern: str, start: int, end: int, *, across: bool) -> tuple[_Token, int]:
    """Return the token of the stars from `start` to `end`, and the position after it.

    Two or more stars cross folders if they are a whole part of the path, or with `across`.
    Otherwise they are like one star.
    """
    if end - start == 1:
        return _Token(wild="*"), end
    begins_part = start == 0 or pattern[start - 1] == "/"
    next_char = pattern[end : end + 1]  # "" at the end of the pattern
    if begins_part and next_char == "/":
        return _Token(wild="**/"), end + 1
    if across or (begins_part and not next_char):
        return _Token(wild="**"), end
    return _Token(wild="*"), end


def _parse_class(pattern: str, start: int) -> tuple[str, int]:
    """Return the regular expression of the character class at `start`, and the position after
    it.
    """
    position = start + 1
    is_negated = pattern[position : position + 1] in ("!", "^")
    if is_negated:
        position += 1
    members = list[str]()
    # A bracket that closes at once would leave an empty class, so it is a member then.
    while not members or pattern[position : position + 1] != "]":
        if position >= len(pattern):
            raise ValueError(
                f"the bracket in {pattern[start : start + 20]!r} is not closed"
            )
        if named := _CLASS_PATTERN.match(pattern, position):
            if named[1] not in _CHARACTER_CLASSES:
                raise ValueError(f"there is no class {named[0]!r}")
            members.append(_CHARACTER_CLASSES[named[1]])
            position = named.end()
            continue
        low, position = _parse_member(pattern, position)
        next_char = pattern[position : position + 1]
        char_after_next = pattern[position + 1 : position + 2]
        if next_char == "-" and char_after_next not in ("", "]"):
            high, position = _parse_member(pattern, position + 1)
            if low > high:
                raise ValueError(f"the range {low}-{high} contains nothing")
            members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(low))
    negation = "^" if is_negated else ""
    # A class never matches a slash.
    return f"(?!/)[{negation}{''.join(members)}]", position + 1


def _parse_member(pattern: str, position: int) -> tuple[str, int]:
    """Return the character of a class at `position`, and the position after it.

    A backslash before the character is skipped.
    """
    if pattern[position : position + 1] == "\\":
        position += 1
    if position >= len(pattern):
        raise ValueError("the bracket is not closed")
    return pattern[position], position + 1
