"""Reads ignore files, as git does: which names in a directory they leave out.

The last line that matches counts. An invalid line matches nothing. `file_walk` finds
the files that hold in a directory; the patterns are those of `values.path_globs`, which no
file can make slow.

A name is compared with thousands of lines in a large repository. Most of them are plain names, or a star and an end
like `*.o`: these are looked up, and only the others are matched one by one.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from refold.values.path_globs import literal_name, regex

_BYTE_ORDER_MARK = "\ufeff"
_SIMPLE_PATTERN = re.compile(r"(?:\*\.)?[\w./-]{1,200}")  # surely valid
_NOTHING_PATTERN = re.compile(r"(?!)")


class IgnoreLine(Struct, frozen=True):
    """A line of an ignore file.

    If `whole`, its pattern is matched against the path below the file's directory, otherwise
    against the last part of the path.
    """

    pattern: str
    whole: bool
    directories: bool  # it matches directories only
    ignores: bool  # False: it begins with `!`

    def matches(self, path: str, name: str) -> bool:
        pattern = _compile(regex(self.pattern))
        return pattern.fullmatch(path if self.whole else name) is not None


class IgnoreLines(Struct, frozen=True):
    """The lines of a file that can match something, the last first; false if there are none.

    `names` and `paths` have the numbers of lines by what they match, `endings` those of lines like `*.o` by what is
    after the star, and `others` those of the rest: one of the two patterns matches if one of these lines does.
    """

    lines: tuple[IgnoreLine, ...] = ()
    names: Mapping[str, tuple[int, ...]] = {}
    paths: Mapping[str, tuple[int, ...]] = {}
    endings: Mapping[str, tuple[int, ...]] = {}
    others: tuple[int, ...] = ()
    other_names: re.Pattern[str] = _NOTHING_PATTERN
    other_paths: re.Pattern[str] = _NOTHING_PATTERN

    def __bool__(self) -> bool:
        return bool(self.lines)

    def is_ignored(self, path: str, *, directory: bool) -> bool | None:
        """Whether the lines ignore a path below their directory; None if no line matches."""
        name = path.rpartition("/")[2]
        numbers = [*self.names.get(name, ()), *self.paths.get(path, ())]
        if self.endings:
            start = name.find(".")
            while start >= 0:
                numbers += self.endings.get(name[start:], ())
                start = name.find(".", start + 1)
        if self.other_names.fullmatch(name) or self.other_paths.fullmatch(path):
            numbers += (n for n in self.others if self.lines[n].matches(path, name))
        matching = (n for n in numbers if directory or not self.lines[n].directories)
        first = min(matching, default=None) if numbers else None
        return None if first is None else self.lines[first].ignores


NO_LINES = IgnoreLines()


def read_lines(text: str) -> IgnoreLines:
    lines = text.removeprefix(_BYTE_ORDER_MARK).split("\n")
    parsed = (_parse_line(line.removesuffix("\r")) for line in reversed(lines))
    return _index([line for line in parsed if line is not None])


def _index(lines: Sequence[IgnoreLine]) -> IgnoreLines:
    names, paths, endings = (dict[str, tuple[int, ...]]() for _ in range(3))
    others = list[int]()
    for number, line in enumerate(lines):
        literal, ending = literal_name(line.pattern), None
        if literal is None and not line.whole and line.pattern.startswith("*."):
            ending = literal_name(line.pattern[1:])
        if literal is not None:
            table, key = paths if line.whole else names, literal
        elif ending is not None:
            table, key = endings, ending
        else:
            others.append(number)
            continue
        table[key] = (*table.get(key, ()), number)
    of_names = [lines[number] for number in others if not lines[number].whole]
    of_paths = [lines[number] for number in others if lines[number].whole]
    return IgnoreLines(
        tuple(lines),
        names,
        paths,
        endings,
        tuple(others),
        _any_of(of_names),
        _any_of(of_paths),
    )


def _any_of(lines: Sequence[IgnoreLine]) -> re.Pattern[str]:
    if not lines:
        return _NOTHING_PATTERN
    return _compile("|".join(f"(?:{regex(line.pattern)})" for line in lines))


@lru_cache(256)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _parse_line(text: str) -> IgnoreLine | None:
    if not text or text.startswith("#"):
        return None
    text = _strip_trailing_spaces(text)
    ignores = not text.startswith("!")
    text = text.removeprefix("!")
    pattern = text.removesuffix("/")
    directories = pattern != text
    is_anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    if not _SIMPLE_PATTERN.fullmatch(pattern):
        try:
            regex(pattern)
        except ValueError:
            return None
    return IgnoreLine(pattern, is_anchored, directories, ignores)


def _strip_trailing_spaces(text: str) -> str:
    stripped = text.rstrip(" ")
    slashes = len(stripped) - len(stripped.rstrip("\\"))
    return f"{stripped} " if slashes % 2 and stripped != text else stripped
