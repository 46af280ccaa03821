"""Reads ignore files, as git does: which names in a directory they leave out.

The last line that matches counts. An invalid line matches nothing. `file_walk` finds
the files that hold in a directory; the patterns are those of `values.path_globs`, which no
file can make slow.
"""

import re

from msgspec import Struct

from refold.values.path_globs import regex

_BYTE_ORDER_MARK = "\ufeff"


class IgnoreLine(Struct, frozen=True):
    """A line of an ignore file.

    If `whole`, its pattern is matched against the path below the file's directory, otherwise
    against the last part of the path.
    """

    pattern: re.Pattern[str]
    whole: bool
    directories: bool  # it matches directories only
    ignores: bool  # False: it begins with `!`


def read_lines(text: str) -> tuple[IgnoreLine, ...]:
    """The lines of a file that can match something, the last first."""
    lines = text.removeprefix(_BYTE_ORDER_MARK).split("\n")
    parsed = (_parse_line(line.removesuffix("\r")) for line in reversed(lines))
    return tuple(line for line in parsed if line is not None)


def is_ignored(lines: tuple[IgnoreLine, ...], path: str, *, directory: bool) -> bool | None:
    """Whether the lines ignore a path below their directory; None if no line matches."""
    name = path.rpartition("/")[2]
    for line in lines:
        if (directory or not line.directories) and line.pattern.fullmatch(
            path if line.whole else name
        ):
            return line.ignores
    return None


def _parse_line(text: str) -> IgnoreLine | None:
    if not text or text.startswith("#"):
        return None
    text = _strip_trailing_spaces(text)
    ignores = not text.startswith("!")
    text = text.removeprefix("!")
    plain = text.removesuffix("/")
    directories = plain != text
    whole = "/" in plain
    plain = plain.removeprefix("/")
    if not plain:
        return None
    try:
        pattern = re.compile(regex(plain), re.DOTALL)
    except ValueError:
        return None
    return IgnoreLine(pattern, whole, directories, ignores)


def _strip_trailing_spaces(text: str) -> str:
    stripped = text.rstrip(" ")
    slashes = len(stripped) - len(stripped.rstrip("\\"))
    return f"{stripped} " if slashes % 2 and stripped != text else stripped
