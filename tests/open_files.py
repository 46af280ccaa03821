"""Simulates a process that cannot open further files."""

import resource
from collections.abc import Generator
from contextlib import contextmanager

_STANDARD_STREAMS = 3  # these are open; poll() takes at most as many files as the limit


@contextmanager
def no_more_files() -> Generator[None]:
    """Let every attempt to open a file fail with EMFILE, until the block ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_STANDARD_STREAMS, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
