"""Does an allow rule for commands cover a simple command? Only what it spells, word by word.

A last ` *` or `:*` stands for further words, but for none that `dangers` knows. What a
whole line needs is put together elsewhere.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache

from refold.permissions.shell.dangers import dangerous
from refold.permissions.shell.plain import SimpleCommand, plain

_WILD = re.compile(r"[*?\[]")


def covers(pattern: str, part: SimpleCommand) -> bool:
    """`pattern` as in `npm run test:*`."""
    if not part.bare:
        return False
    wanted = pattern_words(pattern)
    given = part.values
    more = wanted[-1] == "*"
    fixed = wanted[:-1] if more else wanted
    if len(given) < len(fixed) or (len(given) > len(fixed) and not more):
        return False
    if any(word.loose for word in part.words):
        return False
    if not all(map(fnmatchcase, given, fixed)):
        return False
    free = next((at for at, want in enumerate(fixed) if _free(want)), len(fixed))
    return not dangerous(given, free)


@lru_cache(maxsize=512)
def pattern_words(pattern: str) -> tuple[str, ...]:
    """A pattern for each word. What stands in quotes in a rule means just itself."""
    spread = re.sub(r":\*$", " *", pattern)
    parts = plain(spread)
    if len(parts) != 1 or not parts[0].bare:
        return tuple(spread.split())
    return tuple(
        w.value if w.glob else _WILD.sub(r"[\g<0>]", w.value) for w in parts[0].words
    )


def _free(want: str) -> bool:
    return bool(_WILD.search(re.sub(r"\[[*?\[]\]", "", want)))
