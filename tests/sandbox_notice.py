"""What refold says at each start where no sandbox works: left out of what tests compare.

The tests of it are in `place/test_sandbox_missing.py`. Where bubblewrap works there is no
such notice, and nothing is left out.
"""

import os
from functools import cache

from refold.place.sandbox import find
from refold.place.sandbox_rules import Wish


@cache
def sandbox_notice() -> str:
    """The notice of this machine, or ""."""
    return find(os.environ, Wish(roots=("/",))).notice


def without_sandbox_notice(said: str) -> str:
    """What was written to stderr, without the line of the notice."""
    notice = sandbox_notice()
    lines = said.splitlines(keepends=True)
    return "".join(
        line for line in lines if not notice or line.rstrip("\n") != f"refold: {notice}"
    )
