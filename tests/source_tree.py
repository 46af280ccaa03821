"""Parses modules once for all tests that read the source."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def parse_file(path: Path) -> ast.Module:
    # Trees stay until the end. To scan them for garbage takes four times as long as to parse.
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, in the order of `ast.walk`."""
    return tuple(ast.walk(parse_file(path)))
