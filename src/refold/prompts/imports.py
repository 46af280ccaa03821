"""Which files a text names with `@path`, as a file of instructions does to bring them in.

Only what stands at the beginning of a word counts, and nothing within code. Pure:
whether there is such a file, and may be read, is `instructions`' business.
"""

import re
from collections.abc import Iterator

_NAMED = re.compile(r"(?:^|(?<=[\s(]))@([^\s@`]+)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_AFTER = ".,;:!?)]}>\"'*_"
# So written, it can be meant as a path only; @somebody and @scope/package may be no file.
_PATH = re.compile(r"(?:\.{0,2}/|~/).+|.*\.(?:md|mdc|markdown|txt|rst|adoc)", re.IGNORECASE)


def imports(text: str) -> tuple[str, ...]:
    """The names, each once, in the order of the text."""
    return tuple(dict.fromkeys(_names(text)))


def is_path(name: str) -> bool:
    """Must this be meant as a path, so that a file that is missing is worth a word?"""
    return bool(_PATH.fullmatch(name))


def _names(text: str) -> Iterator[str]:
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            closes = (
                found and found[1].startswith(fence) and not line[found.end() :].strip()
            )
            fence = "" if closes else fence
        elif found and "`" not in line[found.end() :]:
            fence = found[1]
        elif "@" in line:
            for piece in _outside_code(line):
                for name in _NAMED.findall(piece):
                    if stripped := name.rstrip(_AFTER):
                        yield stripped


def _outside_code(line: str) -> Iterator[str]:
    """The pieces of a line that stand between no two equal runs of backticks."""
    pieces = re.split(r"(`+)", line)
    last = {run: at for at, run in enumerate(pieces) if at % 2}
    at = 0
    while at < len(pieces):
        if at % 2 and last[pieces[at]] > at:
            at = pieces.index(pieces[at], at + 1)
        elif not at % 2:
            # What follows code at once stands at the beginning of no word.
            yield pieces[at] if at == 0 else f"`{pieces[at]}"
        at += 1
