"""Words of a script, as far as they are known before it runs, and patterns on them.

A part that only the running shell knows is a mark in the text, so that a rule can still be
compared with the rest. `meets` says whether such a text could match a pattern. Rules for
files need that, too, so nothing here loads the grammar. `script` finds the commands.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from tree_sitter import Node


# Marks. No command that can be run holds these characters; `script` sees to it.
GAP = "\x00"  # some unknown text
HOME = "\x05"
HERE = "\x0e"  # the directory that a command runs in
_BLANK = "\x06"  # where the shell splits a word
STAR, QUERY, BRACKET = "\x01", "\x02", "\x03"  # unquoted globs
_OPEN, _COMMA, _CLOSE = "\x04", "\x07", "\x08"
MARKS = re.compile("[\x00-\x08\x0e]")
_GLOBBED = re.compile(f"{BRACKET}[^]/]*]?|[{STAR}{QUERY}]")

_BACK = str.maketrans(
    {STAR: "*", QUERY: "?", BRACKET: "[", _OPEN: "{", _COMMA: ",", _CLOSE: "}"}
)
_SPECIAL = str.maketrans({
    "*": STAR, "?": QUERY, "[": BRACKET, "{": _OPEN, ",": _COMMA, "}": _CLOSE,
})  # fmt: skip
_BRACES = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*)({_CLOSE})")
_SPREADS = re.compile(f"[{_OPEN}{_COMMA}{_CLOSE}]")
_ESCAPE = re.compile(r"\\(\n|.)|[*?\[{,}]", re.DOTALL)
_IN_DOUBLE = re.compile(r'\\([$`"\\\n])')
_ANSI = re.compile(
    r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|c.|.)", re.DOTALL
)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b",
            "f": "\f", "v": "\v"}  # fmt: skip
_MOST_WORDS = 500  # that braces may make

_SELF = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_CHECKED = re.compile(r"\w+(?=:?\?)|(?:HOME|PWD)(?=:?-)")  # ${NAME:?said if unset}

Known = Mapping[str, str]  # variables with the one text the script gives them


# What may stand in the text of a variable: globs and homes are read again where it is used.
OPEN = re.compile(f"[{GAP}{_BLANK}{_OPEN}{_COMMA}{_CLOSE}]")


def blurred(value: str) -> str:
    """`value` with gaps for all that it leaves open."""
    return MARKS.sub(GAP, _GLOBBED.sub(GAP, value))


class Word(Struct, frozen=True):
    """`value` may hold marks. With `many` it may be any number of words."""

    value: str
    many: bool = False

    @property
    def known(self) -> bool:
        return not MARKS.search(self.value)

    @property
    def text(self) -> str:
        """As written, globs as themselves; unknown text stays a mark."""
        return self.value.translate(_BACK) if MARKS.search(self.value) else self.value


def words(node: "Node", known: Known) -> Iterator[Word]:
    """The words that a shell makes of this one."""
    value = _value(node, known, quoted=False)
    for spread in _spread(value):
        for piece in spread.split(_BLANK):
            if piece or _BLANK not in spread:
                yield Word(_home(piece), many=piece == GAP and node.type != "string")


def one(node: "Node", known: Known) -> str:
    return _home(_value(node, known, quoted=True))


def _home(value: str) -> str:
    return HOME + value[1:] if value == "~" or value.startswith("~/") else value


def _value(node: "Node", known: Known, *, quoted: bool) -> str:
    raw = (node.text or b"").decode(errors="replace")
    match node.type:
        case "word" | "number" | "command_name" if not node.named_child_count:
            value = _ESCAPE.sub(_unescaped, raw.replace("``", ""))
        case "raw_string":
            value = raw[1:-1]
        case "ansi_c_string":
            value = _ANSI.sub(_ansi, raw[2:-1])
        case "string_content" | "heredoc_content":
            value = _IN_DOUBLE.sub(lambda m: "" if m[1] == "\n" else m[1], raw)
        case "string" | "translated_string":
            value = _joined(node, known, quoted=True)
        case "concatenation" | "command_name" | "heredoc_body":
            value = _joined(node, known, quoted=quoted)
        case "simple_expansion" | "expansion":
            value = _variable(raw, known, quoted=quoted)
        case "command_substitution" if _SELF.fullmatch(raw):
            value = HERE
        case "command_substitution" if re.fullmatch(r"`\s*`|\$\(\s*\)", raw):
            value = ""
        case _:
            value = GAP if node.is_named else raw.replace("``", "").translate(_SPECIAL)
    return value


def _joined(node: "Node", known: Known, *, quoted: bool) -> str:
    """Children, and what the grammar left out between them."""
    whole, at, pieces = node.text or b"", node.start_byte, list[str]()
    for child in node.children:
        if child.start_byte > at:
            pieces.append(
                _between(whole[at - node.start_byte : child.start_byte - node.start_byte])
            )
        marks = ('"', "$") if node.type == "translated_string" else ('"',)
        if not (quoted and child.type in marks):
            pieces.append(_value(child, known, quoted=quoted))
        at = child.end_byte
    pieces.append(_between(whole[at - node.start_byte :]))
    return "".join(pieces)


def _between(raw: bytes) -> str:
    return raw.decode(errors="replace").replace("\\\n", "").replace("``", "")


def _variable(raw: str, known: Known, *, quoted: bool) -> str:
    name = raw.removeprefix("$").strip("{}")
    if re.match(r"IFS\b", name):
        return " " if quoted else _BLANK
    if found := _CHECKED.match(name):
        name = found[0]
    if name in ("HOME", "PWD") and name not in known:
        return HOME if name == "HOME" else HERE
    if name not in known:
        return GAP
    value = known[name]
    return value if quoted else re.sub(r"[ \t\n]+", _BLANK, value)


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0].translate(_SPECIAL)
    return "" if found[1] == "\n" else found[1]


def _ansi(found: re.Match[str]) -> str:
    said = found[1]
    if said[0] in "xuU" and len(said) > 1:
        code = int(said[1:], 16)
    elif said[0] in "01234567":
        code = int(said, 8) & 0xFF
    elif said[0] == "c" and len(said) > 1:
        code = ord(said[1]) & 0x1F
    else:
        return _LETTERS.get(said, said)
    return chr(code) if 8 < code < 0x110000 else GAP


def _spread(value: str) -> list[str]:
    """The brace expansion of a word."""
    if not _SPREADS.search(value):
        return [value]
    done, todo = list[str](), [value]
    while todo and len(todo) + len(done) < _MOST_WORDS:
        now = todo.pop(0)
        found = _BRACES.search(now)
        if not found:
            done.append(now)
        elif _COMMA in found[1]:
            start, end = now[: found.start()], now[found.end() :]
            todo[:0] = [start + piece + end for piece in found[1].split(_COMMA)]
        else:
            todo.insert(0, now[: found.start()] + "{" + found[1] + "}" + now[found.end() :])
    back = {_OPEN: "{", _COMMA: ",", _CLOSE: "}"}
    return [v.translate(str.maketrans(back)) for v in (*done, *(GAP for _ in todo))]


Held: TypeAlias = Literal["no", "maybe", "yes"]


@lru_cache(maxsize=1024)
def meets(pattern: tuple[str, ...], value: str) -> bool:
    """Is there a text for both? A gap in `value` is any text; `pattern` is of shell globs."""
    reached = {0}
    reached = _past_stars(pattern, reached)
    for char in value:
        if char == GAP:
            reached = set(range(min(reached), len(pattern) + 1))
            continue
        then = set[int]()
        for at in reached:
            if at == len(pattern):
                continue
            if pattern[at] == "*":
                then.add(at)
            elif fnmatchcase(char, pattern[at]):
                then.add(at + 1)
        reached = _past_stars(pattern, then)
        if not reached:
            return False
    return len(pattern) in reached


def _past_stars(pattern: tuple[str, ...], reached: set[int]) -> set[int]:
    found = set(reached)
    for at in sorted(reached):
        here = at
        while here < len(pattern) and pattern[here] == "*":
            here += 1
            found.add(here)
    return found
