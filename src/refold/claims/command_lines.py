"""Command lines of evidence: which commands one joins, and whether it hides a failure. Pure.

Not a parser of the shell: what is not plainly a chain of `&&` is one command, and what
may be more than its exit code tells is taken for that.
"""

import re
from collections.abc import Sequence

_TOKEN = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|&&|\d?>&\d|&>|.""", re.DOTALL)
_OTHER = frozenset(";|\n&()`#'\"")  # what else joins, hides or is left open
_HIDES = re.compile(r"[;|&\n!`]|\$\(")
_PLAIN = re.compile(r"&&|\d?>&\d|&>")


def parts(command: str) -> Sequence[str]:
    """The commands of `a && b`, each of which has ended well if all of it has."""
    found, now = list[str](), ""
    for token in _TOKEN.findall(command):
        if token in _OTHER:
            return ()
        if token == "&&":
            found.append(now)
            now = ""
        else:
            now += token
    return (*found, now) if found else ()


def hides_failures(command: str) -> bool:
    """May the line end with 0 though one of its commands did not?"""
    return bool(_HIDES.search(_PLAIN.sub(" ", command)))
