"""Reads ignore files as git does, and decides which names in a directory they ignore.

The last matching line decides. An invalid line matches nothing. `file_walk` finds the ignore
files of a directory. Patterns are matched by `values.path_globs`, which no file can make slow.

In a large repository, each name is compared with thousands of lines. Most lines are plain
names, or a star and an ending like `*.o`. These are looked up in tables, and only the other
lines are matched one by one.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from refold.values.path_globs import literal_name, regex

_BYTE_ORDER_MARK = "\ufeff"
# certainly valid, so it need not be checked
_SIMPLE_PATTERN = re.compile(r"(?:\*\.)?[\w./-]{1,200}")
_NOTHING_PATTERN = re.compile(r"(?!)")  # matches nothing


class IgnoreLine(Struct, frozen=True):
    """One line of an ignore file.

    If `whole` is set, `pattern` is matched against the path relative to the ignore file's
    directory, otherwise against the last part of the path.
    """

    pattern: str
    whole: bool
    directories: bool  # it matches directories only
    ignores: bool  # False for a line that begins with `!`

    def matches(self, path: str, name: str) -> bool:
        pattern = _compile(regex(self.pattern))
        return pattern.fullmatch(path if self.whole else name) is not None


class IgnoreLines(Struct, frozen=True):
    """The usable lines of an ignore file, the last one first.

    The object is true if it has lines. The tables contain indexes of `lines`. `names` maps a
    name, and `paths` a path, to the lines that match only that name or path; `endings` maps
    `.o` to the lines `*.o`. `others` are all other lines. These lines are only tried if
    `other_names` matches the name or `other_paths` the path.
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
        """Whether a path is ignored; None if no line matches it.

        `path` is relative to the directory of the ignore file.
        """
        name = path.rpartition("/")[2]
        # the numbers of the lines that match
        numbers = [*self.names.get(name, ()), *self.paths.get(path, ())]
        if self.endings:
            start = name.find(".")
            while start >= 0:  # `a.tar.gz` ends with `.tar.gz` and with `.gz`
                numbers += self.endings.get(name[start:], ())
                start = name.find(".", start + 1)
        if self.other_names.fullmatch(name) or self.other_paths.fullmatch(path):
            numbers += (n for n in self.others if self.lines[n].matches(path, name))
        # Some lines apply to directories only.
        applicable = [n for n in numbers if directory or not self.lines[n].directories]
        if not applicable:
            return None
        # The lines are in reverse order, so the lowest number is the last line of the file.
        return self.lines[min(applicable)].ignores


NO_LINES = IgnoreLines()


def read_lines(text: str) -> IgnoreLines:
    """Parse the text of an ignore file. The last line comes first, because it has precedence."""
    lines = text.removeprefix(_BYTE_ORDER_MARK).split("\n")
    parsed = (_parse_line(line.removesuffix("\r")) for line in reversed(lines))
    return _index([line for line in parsed if line is not None])


def _index(lines: Sequence[IgnoreLine]) -> IgnoreLines:
    """Fill the tables of `IgnoreLines`. `lines` begin with the last line of the file.

    A line is found in a table by the name, the path or the ending that it matches. Other lines
    are joined to one pattern for names and one for paths.
    """
    names, paths, endings = (dict[str, tuple[int, ...]]() for _ in range(3))
    others = list[int]()
    for number, line in enumerate(lines):
        key = literal_name(line.pattern)  # None if it has wildcards
        table = paths if line.whole else names
        # Among the names, `*.o` is found by its ending.
        if key is None and not line.whole and line.pattern.startswith("*."):
            table = endings
            key = literal_name(line.pattern[1:])
        if key is None:
            others.append(number)
        else:
            table[key] = (*table.get(key, ()), number)
    of_names = [lines[number] for number in others if not lines[number].whole]
    of_paths = [lines[number] for number in others if lines[number].whole]
    return IgnoreLines(
        tuple(lines),
        names,
        paths,
        endings,
        tuple(others),
        other_names=_any_of(of_names),
        other_paths=_any_of(of_paths),
    )


def _any_of(lines: Sequence[IgnoreLine]) -> re.Pattern[str]:
    """Return a pattern that matches what at least one of `lines` matches."""
    if not lines:
        return _NOTHING_PATTERN
    alternatives = (f"(?:{regex(line.pattern)})" for line in lines)
    return _compile("|".join(alternatives))


@lru_cache(256)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _parse_line(text: str) -> IgnoreLine | None:
    """Parse a line of an ignore file. Return None if it is a comment or can match nothing."""
    if not text or text.startswith("#"):
        return None
    text = _strip_trailing_spaces(text)
    ignores = not text.startswith("!")
    text = text.removeprefix("!")
    directories_only = text.endswith("/")
    pattern = text.removesuffix("/")
    is_anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    if not _SIMPLE_PATTERN.fullmatch(pattern):
        try:
            regex(pattern)
        except ValueError:
            return None
    return IgnoreLine(
        pattern, whole=is_anchored, directories=directories_only, ignores=ignores
    )


def _strip_trailing_spaces(text: str) -> str:
    """Remove the spaces at the end, except one that a backslash escapes."""
    stripped = text.rstrip(" ")
    backslash_count = len(stripped) - len(stripped.rstrip("\\"))
    # two backslashes are an escaped backslash
    is_space_escaped = stripped != text and backslash_count % 2 == 1
    return f"{stripped} " if is_space_escaped else stripped
