"""Files that are asked about in every mode, since they hold secrets or decide what runs.

Known by their names, in any case of letters, whether they exist or not: which, says
`values.guarded`, for the sandbox keeps commands from the same. refold's own directories
are told by `Facts.own`. Whether a command names one is judged in `shell`.
"""

import re

from refold.permissions.facts import Facts
from refold.values.below import below
from refold.values.guarded import KEYS, guarded

# Commands make these all the time, so no sandbox keeps them from it.
_KEY_FILES = re.compile(r".+\.(?:pem|key|p12|pfx|ppk|kdbx|keystore|jks)")
_RUN_LATER = ("/.husky/", "/library/launchagents/")


def protected(path: str, facts: Facts, *, writes: bool) -> bool:
    """Is this file asked about in every mode? `path` is absolute."""
    theirs = any(below(path, tree) for tree in facts.trees)
    if not theirs and any(below(path, own) for own in facts.own):
        return True
    small = path.casefold()
    reason = guarded(path.split("/"))
    if reason == KEYS or _KEY_FILES.fullmatch(small.rpartition("/")[2]):
        return True
    return writes and (bool(reason) or any(each in small + "/" for each in _RUN_LATER))
