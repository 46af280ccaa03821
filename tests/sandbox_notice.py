"""Removes the notice of a missing sandbox, which each start prints, from compared output.

The tests of the notice are in `place/test_sandbox_missing.py`. If bubblewrap works, there is no such
notice, and nothing is removed.
"""

import os
from functools import cache

from refold.place.sandbox import find_sandbox
from refold.place.sandbox_rules import SandboxConfig


@cache
def sandbox_notice() -> str:
    """Return the notice of this machine, or ""."""
    return find_sandbox(os.environ, SandboxConfig(roots=("/",))).notice


def without_sandbox_notice(text: str) -> str:
    """Return the text of stderr without the line of the notice."""
    notice = sandbox_notice()
    lines = text.splitlines(keepends=True)
    return "".join(
        line for line in lines if not notice or line.rstrip("\n") != f"refold: {notice}"
    )
