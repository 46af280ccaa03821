"""The grammar of bash, loaded when the first command is judged. What a tree means is not known here."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser, Tree

# More than this is no argument the system would hand to a shell.
LONGEST = 131_071


_SHORT = 4_000  # bytes that are read in no time, whatever they are
_EFFORT = 3_000  # hundreds of steps: some longer texts would take minutes


def parse(source: bytes) -> "Tree | None":
    """The tree of a script; None where reading it takes too long."""
    parser = _parser()
    if len(source) <= _SHORT:
        return parser.parse(source)
    steps = 0

    def piece(at: int, _point: object) -> bytes:
        return source[at : at + _SHORT]

    def too_long(_at: int, _error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > _EFFORT

    try:
        return parser.parse(piece, progress_callback=too_long)
    except ValueError:
        parser.reset()
        return None


@cache
def _parser() -> "Parser":
    # Not wanted at the start of the program: it takes some 30 ms.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
