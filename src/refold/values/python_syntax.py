"""Parses Python source safely in a process with threads.

In CPython 3.11 all threads share the depth of the tree that is being made. If the garbage
collector lets another thread parse in the middle, one of the two raises `SystemError`. So only
one thread parses at a time. It tries again after a `SystemError`, because `traceback` of the
standard library parses, too. No other code of refold calls `ast.parse` in such a process.
"""

import ast
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TypeVar

TreeT = TypeVar("TreeT", bound=ast.AST)
_MAX_RETRIES = 5  # after a `SystemError`
_parsing = Lock()


def parse_module(source: str, file: str = "<unknown>") -> ast.Module:
    """Parse a module. Raises the same errors as `ast.parse`."""
    return _parse(partial(ast.parse, source, file))


def parse_expression(source: str) -> ast.Expression:
    """Parse an expression. Raises the same errors as `ast.parse`."""
    return _parse(partial(ast.parse, source, mode="eval"))


def _parse(parse: Callable[[], TreeT]) -> TreeT:
    """Return the result of `parse`. One thread parses at a time; a `SystemError` is retried."""
    with _parsing:
        for _ in range(_MAX_RETRIES):
            with suppress(SystemError):
                return parse()
        return parse()  # the last attempt
