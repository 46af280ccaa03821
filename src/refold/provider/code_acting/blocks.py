"""The code in an answer: its fenced blocks of Python, in their order. Pure.

Fences are read as CommonMark has them: one closes with as many of its own marks, on a
line of their own. So a block that stands inside another, or is quoted, is no code to be
run. Models indent fences in lists, and leave the last one open; both are heard.
"""

import ast
import re
from collections.abc import Iterator

_OPENS = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`]*)[^`\n]*$")
_PYTHON = frozenset({"python", "python3", "py", "repl"})
_IN_A_STRING = "unterminated triple-quoted"


def blocks(answer: str, *, whole: bool = True) -> tuple[str, ...]:
    """`whole`: the answer came to its proper end, so a block that is open at it has, too."""
    return tuple(code for code in _found(answer.splitlines(), whole) if code.strip())


def through_first_block(answer: str) -> str:
    """The answer up to the line that closes its first block; "" if none does, yet.

    A line without an end may still become another.
    """
    lines = answer.splitlines(keepends=True)
    over = len(lines) if answer.endswith("\n") else len(lines) - 1
    for upto in range(1, over + 1):
        before = "".join(lines[:upto])
        if blocks(before, whole=False):
            return before.rstrip("\r\n")
    return ""


def _found(lines: list[str], whole: bool) -> Iterator[str]:
    at = 0
    while at < len(lines):
        opened = _OPENS.match(lines[at])
        at += 1
        if opened is None:
            continue
        indent, fence, language = opened.groups()
        python = language.lower() in _PYTHON
        end = _end(lines, at, fence, len(indent), python)
        closed = end < len(lines)
        if python and (closed or whole):
            yield _code(lines[at:end], len(indent))
        at = end + 1


def _end(lines: list[str], first: int, fence: str, indent: int, python: bool) -> int:
    """The line that closes a fence; or the one after the last.

    Marks inside of a string of Python's close nothing: code writes Markdown, too.
    """
    closes = re.compile(rf"^[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
    ends = [n for n in range(first, len(lines)) if closes.match(lines[n])]
    for end in ends:
        if not (python and _in_a_string(_code(lines[first:end], indent))):
            return end
    return ends[0] if ends else len(lines)


def _code(lines: list[str], indent: int) -> str:
    kept = (line[indent:] if not line[:indent].strip() else line for line in lines)
    return "\n".join(kept)


def _in_a_string(code: str) -> bool:
    """Does the code end in the middle of a string that spans lines?"""
    if '"""' not in code and "'''" not in code:
        return False
    try:
        ast.parse(code)
    except SyntaxError as error:
        return error.msg.startswith(_IN_A_STRING)
    except (ValueError, RecursionError, MemoryError):
        return False
    return False
