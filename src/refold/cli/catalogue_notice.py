"""Notices on stderr while the catalogue of sessions is indexing journals.

It is a small module, because commands that may not need the catalogue import it, too.
"""

import time

from refold.headless.streams import print_error

_QUIET = 1.0  # seconds that nothing is said


class WaitNotice:
    """Says once, on stderr, that there is something to wait for, if it takes long."""

    def __init__(self) -> None:
        self._began, self._said = time.monotonic(), False

    def __call__(self, done: int, of: int) -> None:
        if not self._said and done < of and time.monotonic() - self._began > _QUIET:
            self._said = True
            print_error(f"reading {of - done:,} sessions that are new to the catalogue…")
