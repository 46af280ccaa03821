"""Can a text that is not wholly known be one that a pattern means?

By itself, because rules about files need it where no command is ever read.
"""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, TypeAlias

from refold.permissions.shell.words import GAP

Held: TypeAlias = Literal["no", "maybe", "yes"]


@lru_cache(maxsize=1024)
def meets(pattern: tuple[str, ...], value: str) -> bool:
    """Is there a text for both? A gap in `value` is any text; `pattern` is of shell globs."""
    reached = {0}
    reached = _past_stars(pattern, reached)
    for char in value:
        if char == GAP:
            reached = set(range(min(reached), len(pattern) + 1))
            continue
        then = set[int]()
        for at in reached:
            if at == len(pattern):
                continue
            if pattern[at] == "*":
                then.add(at)
            elif fnmatchcase(char, pattern[at]):
                then.add(at + 1)
        reached = _past_stars(pattern, then)
        if not reached:
            return False
    return len(pattern) in reached


def _past_stars(pattern: tuple[str, ...], reached: set[int]) -> set[int]:
    found = set(reached)
    for at in sorted(reached):
        here = at
        while here < len(pattern) and pattern[here] == "*":
            here += 1
            found.add(here)
    return found
