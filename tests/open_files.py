"""A process that has as many open files as it may."""

import resource
from collections.abc import Generator
from contextlib import contextmanager

_STANDARD_STREAMS = 3  # which are open; and poll() takes no more files than the limit


@contextmanager
def no_more_files() -> Generator[None]:
    """Within the block, nothing new can be opened: it fails with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_STANDARD_STREAMS, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
