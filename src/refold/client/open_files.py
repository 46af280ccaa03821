"""How many files this process has open, and how many it may have.

A session that a process writes takes two files, and its model and its clients a socket each.
`session_worker` begins no session while there is no room, and releases idle ones.
"""

import os
from contextlib import suppress

_MAX_FILES = 8192  # more would slow down programs that close every number they may have
_FILES_OF_SESSION = 6  # of one that begins: its journal, its model, and what it reads
_ROOM_SHARE = 0.8  # of the limit; the rest is for clients and for what is open briefly


def raise_limit() -> None:
    """Raise the limit of open files to the maximum that the system permits: many systems
    begin with 1024.
    """
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def can_begin_session(beginning: int) -> bool:
    """Whether another session can begin, besides the `beginning` ones that have just begun."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        count = len(os.listdir("/dev/fd"))
    except (ImportError, OSError):  # not known here
        return True
    needed = count + (beginning + 1) * _FILES_OF_SESSION
    return limit == resource.RLIM_INFINITY or needed <= limit * _ROOM_SHARE
