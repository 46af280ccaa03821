"""File patterns: `*.py`, `src/**/*.ts`, `{a,b}/?.c`, `[a-z]*`.

A pattern without a slash is matched on the name alone, at any depth; one with a
slash on the whole path below where the search began.
"""

import re
from collections.abc import Callable, Iterator

from refold.errors import ToolFailed

_TOKEN = r"(?s)\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|\{|\}|,|\\.|."


def matcher(pattern: str) -> Callable[[str], bool]:
    """A test on relative paths. Raises `ToolFailed` for a pattern with no sense."""
    pattern = pattern.removeprefix("./")
    whole = "/" in pattern
    try:
        matches = re.compile("".join(_parts(pattern.lstrip("/"))), re.DOTALL).fullmatch
    except re.error as error:
        raise ToolFailed(f"The pattern {pattern!r} makes no sense: {error}.") from error
    return lambda path: bool(matches(path if whole else path.rpartition("/")[2]))


def _parts(pattern: str) -> Iterator[str]:
    depth = 0
    for found in re.finditer(_TOKEN, pattern):
        token = found[0]
        if token == "{":
            depth += 1
        elif token == "}" and depth:
            depth -= 1
        elif token in ("}", ",") and not depth:
            token = f"\\{token}"
        yield _part(token)


_SIGNS = {
    "**/": "(?:[^/]+/)*",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
    "{": "(?:",
    "}": ")",
    ",": "|",
}


def _part(token: str) -> str:
    match token:
        case _ if token in _SIGNS:
            return _SIGNS[token]
        case _ if token.startswith("[") and len(token) > 1:
            inner = token[1:-1].replace("\\", r"\\").replace("[", r"\[")
            return f"[{inner.replace('!', '^', 1) if inner.startswith('!') else inner}]"
        case _ if token.startswith("\\") and len(token) > 1:
            return re.escape(token[1:])
        case _:
            return re.escape(token)
