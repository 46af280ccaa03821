"""Counts the open files of this process, and raises their limit.

A session that a process writes takes two files and a socket; its model and each of its
clients take another socket. While too few files are free, `session_worker` begins no
session, and releases idle ones.
"""

import errno
import os
from contextlib import suppress

# A higher limit would slow down programs that close every possible descriptor.
_MAX_FILES = 8192
# The files that a session opens at most while it begins: its journal and its socket, what it
# reads, and the pipes of a first command that tests the sandbox.
_FILES_OF_SESSION = 12
# The part of the limit that sessions may use. The rest is for clients and for files that are
# open briefly.
_ROOM_SHARE = 0.8


def raise_limit() -> None:
    """Raise the limit of open files to the system's maximum, but at most to `_MAX_FILES`.

    Many systems begin with 1024. If the limit cannot be raised, it stays as it is.
    """
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
        if soft != resource.RLIM_INFINITY and soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def can_begin_session(beginning: int) -> bool:
    """Whether enough files are free for another session.

    `beginning` is the number of sessions that are about to open their files.
    """
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_files = len(os.listdir("/dev/fd"))
    except ImportError:  # this system has no limit that can be read
        return True
    except OSError as error:
        # EMFILE: no file is free. After another error, the open files cannot be counted.
        return error.errno != errno.EMFILE
    needed = open_files + (beginning + 1) * _FILES_OF_SESSION
    return limit == resource.RLIM_INFINITY or needed <= limit * _ROOM_SHARE
