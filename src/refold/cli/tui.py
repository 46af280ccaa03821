"""`refold tui`: a session in the full screen. It takes the flags of a session."""

import sys
from argparse import Namespace

from refold.cli.flags import session_flags
from refold.cli.main import session
from refold.errors import BadInput

add_arguments = session_flags


def run(found: Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(
            "refold tui needs a terminal. In a pipe or a script: refold -p MESSAGE"
        )
    found.display = "full"
    return session(found)
