"""Which options a program may be given, exact spellings only, and what its other words are.

A form is written on one line: `-abc` options without a value, `-n:` one with a value,
`-u?` one with a value only in the same word, `--long`, `--long=` with a value, `--long=?`
with one after `=` or none, `--arg==` with two more words; `#` allows `-5`. `@none`: the
other words name no files, `@rest`: all but the first do, `@<1`: there is one at most. Some
programs read their words in ways of their own: `@digits`: a value in the same word is a
number, `@apart`: options with a value stand alone, `@front`: no option comes after a file.
Which programs there are is the business of `programs`.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache

from msgspec import Struct

_WAYS = frozenset(("@digits", "@apart", "@front"))
_NUMBER = re.compile(r"-\d+")


class Form(Struct, frozen=True):
    """What a program takes. `long` gives how many further words: -1 for `=` or none."""

    flags: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    attached: frozenset[str] = frozenset()
    long: dict[str, int] = {}
    numbers: bool = False
    names_files: bool = True
    first_is_none: bool = False
    at_most: int | None = None
    ways: frozenset[str] = frozenset()


class ParsedOptions(Struct, frozen=True):
    """The words of a command, sorted. `options` are without their values."""

    options: frozenset[str]
    values: tuple[str, ...]
    others: tuple[int, ...]  # where in the command the words stand that are no options
    problem: str = ""  # the first word that the form does not allow


@cache
def form(written: str) -> Form:
    flags, takes, attached, long = set[str](), set[str](), set[str](), dict[str, int]()
    at_most: int | None = None
    tokens = written.split()
    for token in tokens:
        if token.startswith("--"):
            name = token.rstrip("=?")
            long[name] = {"": 0, "=": 1, "=?": -1, "==": 2}[token[len(name) :]]
        elif token.startswith("-"):
            kind = {":": takes, "?": attached}.get(token[-1], flags)
            kind.update(token[1:].rstrip(":?"))
        elif token.startswith("@<"):
            at_most = int(token[2:])
    return Form(
        frozenset(flags),
        frozenset(takes),
        frozenset(attached),
        long,
        numbers="#" in tokens,
        names_files="@none" not in tokens,
        first_is_none="@rest" in tokens,
        at_most=at_most,
        ways=frozenset(tokens) & _WAYS,
    )


def sort_out(words: Sequence[str], takes: Form) -> ParsedOptions:
    """`words` from the first after the program's name."""
    options, values, others = set[str](), list[str](), list[int]()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            others.extend(range(at, len(words)))
            break
        if not word.startswith("-") or word == "-":
            others.append(at - 1)
            continue
        if others and "@front" in takes.ways:
            return ParsedOptions(frozenset(options), tuple(values), tuple(others), word)
        found = _long(word, takes) if word.startswith("--") else _short(word, takes)
        if found is None:
            return ParsedOptions(frozenset(options), tuple(values), tuple(others), word)
        names, value, more = found
        if at + more > len(words):
            return ParsedOptions(frozenset(options), tuple(values), tuple(others), word)
        options.update(names)
        values.extend(value)
        values.extend(words[at : at + more])
        at += more
    return ParsedOptions(frozenset(options), tuple(values), tuple(others))


def _long(word: str, takes: Form) -> tuple[Iterable[str], list[str], int] | None:
    name, has_value, value = word.partition("=")
    more = takes.long.get(name)
    if more is None or (has_value and more not in (1, -1)):
        return None
    return (name,), [value] if has_value else [], 0 if has_value else max(more, 0)


def _short(word: str, takes: Form) -> tuple[Iterable[str], list[str], int] | None:
    if takes.numbers and _NUMBER.fullmatch(word):
        return (), [], 0
    names = list[str]()
    for at, letter in enumerate(word[1:], 2):
        names.append(f"-{letter}")
        if letter in takes.takes:
            rest = word[at:]
            if _misread(names, rest, takes):
                return None
            return names, [rest] if rest else [], 0 if rest else 1
        if letter in takes.attached:
            return names, [word[at:]], 0
        if letter not in takes.flags:
            return None
    return names, [], 0


def _misread(names: Sequence[str], rest: str, takes: Form) -> bool:
    """Would the program itself take something else for the value?"""
    number = not rest or rest.isdecimal()
    return ("@digits" in takes.ways and not number) or (
        "@apart" in takes.ways and len(names) > 1
    )
