"""The words of a script, known in part before it runs, and how patterns match them.

A part that only the running shell knows is a mark in the text, so that a rule can still be
compared with the rest. `may_match` decides whether a pattern could match a text with marks.
Rules for files use it as well, so this module does not load the grammar. `script` finds the
commands.
"""

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from tree_sitter import Node


# Marks. `script` ensures that no command contains these characters.
UNKNOWN_GAP = "\x00"  # some unknown text
HOME_MARK = "\x05"
DIRECTORY_MARK = "\x0e"  # the directory that a command runs in
_BLANK_MARK = "\x06"  # a position at which the shell splits a word
STAR, QUERY, BRACKET = "\x01", "\x02", "\x03"  # globs outside of quotes
_OPEN, _COMMA, _CLOSE = "\x04", "\x07", "\x08"
MARK_PATTERN = re.compile("[\x00-\x08\x0e]")
_GLOB_PATTERN = re.compile(f"{BRACKET}[^]/]*]?|[{STAR}{QUERY}]")

_MARKS_TO_TEXT = str.maketrans(
    {STAR: "*", QUERY: "?", BRACKET: "[", _OPEN: "{", _COMMA: ",", _CLOSE: "}"}
)
_TEXT_TO_MARKS = str.maketrans({
    "*": STAR, "?": QUERY, "[": BRACKET, "{": _OPEN, ",": _COMMA, "}": _CLOSE,
})  # fmt: skip
_BRACE_GROUP = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*)({_CLOSE})")
_BRACE_MARKS = re.compile(f"[{_OPEN}{_COMMA}{_CLOSE}]")
_ESCAPE_PATTERN = re.compile(r"\\(\n|.)|[*?\[{,}]", re.DOTALL)
_IN_DOUBLE = re.compile(r'\\([$`"\\\n])')
_ANSI_ESCAPE = re.compile(
    r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|c.|.)", re.DOTALL
)
_ESCAPE_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b",
            "f": "\f", "v": "\v"}  # fmt: skip
_MAX_EXPANDED_WORDS = 500  # from one brace expansion

# A substitution without a command, which the grammar takes for text.
_EMPTY_BACKTICKS = "``"
_EMPTY_SUBSTITUTION = re.compile(r"`\s*`|\$\(\s*\)")
_PWD_SUBSTITUTION = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
# ${NAME:?message if unset}
_CHECKED_VARIABLE = re.compile(r"\w+(?=:?\?)|(?:HOME|PWD)(?=:?-)")

Known = Mapping[str, str]  # variables with the only text that the script assigns to them


# Marks that the value of a known variable does not have. Globs in the value are parsed where the
# variable is used.
OPEN_PATTERN = re.compile(f"[{UNKNOWN_GAP}{_BLANK_MARK}{_OPEN}{_COMMA}{_CLOSE}]")


def with_gaps(value: str) -> str:
    """Return `value` with a gap for each mark and glob. A gap stands for any text."""
    return MARK_PATTERN.sub(UNKNOWN_GAP, _GLOB_PATTERN.sub(UNKNOWN_GAP, value))


class Word(Struct, frozen=True):
    """A word of a command. `value` may have marks.

    `may_be_several`: the word may become several words or none.
    """

    value: str
    may_be_several: bool = False

    @property
    def is_known(self) -> bool:
        return not MARK_PATTERN.search(self.value)

    @property
    def text(self) -> str:
        """The word as it is written, with its globs. Unknown text stays a mark."""
        if not MARK_PATTERN.search(self.value):
            return self.value
        return self.value.translate(_MARKS_TO_TEXT)


def expand_words(node: "Node", known: Known) -> Iterator[Word]:
    """Yield the words into which a shell expands the word of this node.

    There are several words for braces, and for a variable outside of quotes with blanks in its
    value.
    """
    value = _value(node, known, quoted=False)
    for expanded in _expand_braces(value):
        is_split = _BLANK_MARK in expanded
        for piece in expanded.split(_BLANK_MARK):
            if is_split and not piece:
                continue
            may_be_several = piece == UNKNOWN_GAP and node.type != "string"
            yield Word(_mark_home(piece), may_be_several=may_be_several)


def word_text(node: "Node", known: Known) -> str:
    return _mark_home(_value(node, known, quoted=True))


def _mark_home(value: str) -> str:
    return HOME_MARK + value[1:] if value == "~" or value.startswith("~/") else value


def _value(node: "Node", known: Known, *, quoted: bool) -> str:
    """Return the text of a node as the shell expands it, with marks for what is not known."""
    raw = (node.text or b"").decode(errors="replace")
    match node.type:
        case "word" | "number" | "command_name" if not node.named_child_count:
            value = _ESCAPE_PATTERN.sub(_unescape, raw.replace(_EMPTY_BACKTICKS, ""))
        case "raw_string":
            value = raw[1:-1]
        case "ansi_c_string":
            value = _ANSI_ESCAPE.sub(_ansi_character, raw[2:-1])
        case "string_content" | "heredoc_content":
            value = _IN_DOUBLE.sub(lambda m: "" if m[1] == "\n" else m[1], raw)
        case "string" | "translated_string":
            value = _join(node, known, quoted=True)
        case "concatenation" | "command_name" | "heredoc_body":
            value = _join(node, known, quoted=quoted)
        case "simple_expansion" | "expansion":
            value = _variable(raw, known, quoted=quoted)
        case "command_substitution":
            value = _substitution_value(raw)
        case _ if node.is_named:
            value = UNKNOWN_GAP
        case _:  # a character of the syntax, such as a brace
            value = raw.replace(_EMPTY_BACKTICKS, "").translate(_TEXT_TO_MARKS)
    return value


def _substitution_value(raw: str) -> str:
    """Return what stands for the output of a command substitution: a mark, a gap or ""."""
    if _PWD_SUBSTITUTION.fullmatch(raw):
        return DIRECTORY_MARK
    return "" if _EMPTY_SUBSTITUTION.fullmatch(raw) else UNKNOWN_GAP


def _join(node: "Node", known: Known, *, quoted: bool) -> str:
    """Return the text of a node: the values of its children, and the text between them.

    `quoted`: the node is a text in double quotes.
    """
    # The positions of nodes count from the beginning of the script.
    source, node_start = node.text or b"", node.start_byte
    quote_marks = ('"', "$") if node.type == "translated_string" else ('"',)
    pieces = list[str]()
    end_of_last = node_start
    for child in node.children:
        if child.start_byte > end_of_last:
            between = source[end_of_last - node_start : child.start_byte - node_start]
            pieces.append(_text_between(between))
        if not (quoted and child.type in quote_marks):
            pieces.append(_value(child, known, quoted=quoted))
        end_of_last = child.end_byte
    pieces.append(_text_between(source[end_of_last - node_start :]))
    return "".join(pieces)


def _text_between(raw: bytes) -> str:
    """Decode a part of a script, without escaped newlines and empty backticks."""
    return raw.decode(errors="replace").replace("\\\n", "").replace("``", "")


def _variable(raw: str, known: Known, *, quoted: bool) -> str:
    """Return the value of a variable `$NAME` or `${NAME}`, or a mark if it is not known.

    Outside quotes, the blanks in a value separate words.
    """
    name = raw.removeprefix("$").strip("{}")
    if re.match(r"IFS\b", name):
        return " " if quoted else _BLANK_MARK
    if match := _CHECKED_VARIABLE.match(name):
        name = match[0]
    if name in ("HOME", "PWD") and name not in known:
        return HOME_MARK if name == "HOME" else DIRECTORY_MARK
    if name not in known:
        return UNKNOWN_GAP
    value = known[name]
    return value if quoted else re.sub(r"[ \t\n]+", _BLANK_MARK, value)


def _unescape(match: re.Match[str]) -> str:
    """Return the character after a backslash, or the mark for an unescaped glob or brace.

    A backslash before a line end continues the line, so both are removed.
    """
    escaped = match[1]
    if escaped is None:
        return match[0].translate(_TEXT_TO_MARKS)
    return "" if escaped == "\n" else escaped


def _ansi_character(match: re.Match[str]) -> str:
    """Return the character for an escape in `$'…'`.

    Return a gap for a control character that this module uses as a mark, and for a number that
    is not a character.
    """
    escape = match[1]
    kind, rest = escape[0], escape[1:]
    if kind in "xuU" and rest:
        code = int(rest, 16)
    elif kind in "01234567":
        code = int(escape, 8) & 0xFF
    elif kind == "c" and rest:
        code = ord(rest) & 0x1F  # \cA is Control-A
    else:
        code = ord(_ESCAPE_LETTERS.get(escape, escape))
    if code > sys.maxunicode or MARK_PATTERN.match(chr(code)):
        return UNKNOWN_GAP
    return chr(code)


def _expand_braces(value: str) -> list[str]:
    """Return the words of a brace expansion: `a{b,c}` becomes ab and ac.

    Beyond the limit, a gap stands for each remaining word.
    """
    if not _BRACE_MARKS.search(value):
        return [value]
    values = list[str]()
    todo = [value]
    while todo and len(todo) + len(values) < _MAX_EXPANDED_WORDS:
        next_value = todo.pop(0)
        match = _BRACE_GROUP.search(next_value)
        if not match:
            values.append(next_value)
            continue
        start, end = next_value[: match.start()], next_value[match.end() :]
        if _COMMA in match[1]:
            todo[:0] = [start + piece + end for piece in match[1].split(_COMMA)]
        else:
            # Braces without a comma are literal, and no longer marks.
            todo.insert(0, f"{start}{{{match[1]}}}{end}")
    values += (UNKNOWN_GAP for _ in todo)
    marks_to_text = str.maketrans({_OPEN: "{", _COMMA: ",", _CLOSE: "}"})
    return [value.translate(marks_to_text) for value in values]


Certainty: TypeAlias = Literal["no", "maybe", "yes"]


def join_answers(answers: Collection[str]) -> Certainty:
    """Return the strongest answer: "yes", then "maybe". Without these, return "no"."""
    if "yes" in answers:
        return "yes"
    return "maybe" if "maybe" in answers else "no"


@lru_cache(maxsize=1024)
def may_match(pattern: tuple[str, ...], value: str) -> bool:
    """Whether some text can match both `pattern` and `value`.

    `pattern` is a shell pattern, split into its characters and wildcards. A gap in `value` is
    any text.
    """
    # The positions in the pattern that are possible after the characters of `value` so far.
    reached = _skip_stars(pattern, {0})
    for char in value:
        if char == UNKNOWN_GAP:
            # The unknown text may match any further part of the pattern.
            reached = set(range(min(reached), len(pattern) + 1))
            continue
        next_positions = set[int]()
        for position in reached:
            if position == len(pattern):
                continue
            if pattern[position] == "*":
                next_positions.add(position)
            elif fnmatchcase(char, pattern[position]):
                next_positions.add(position + 1)
        reached = _skip_stars(pattern, next_positions)
        if not reached:
            return False
    return len(pattern) in reached


def _skip_stars(pattern: tuple[str, ...], reached_positions: set[int]) -> set[int]:
    """Return these positions, and those after each `*` that may match an empty text."""
    positions = set(reached_positions)
    for position in sorted(reached_positions):
        current = position
        while current < len(pattern) and pattern[current] == "*":
            current += 1
            positions.add(current)
    return positions
