"""`refold tui`: runs a session in the full screen, with the flags of a session."""

import sys
from argparse import ArgumentParser, Namespace

from refold.cli.flags import add_session_flags
from refold.cli.main import session
from refold.cli.parser import Parser
from refold.cli.short_help import TUI_HELP
from refold.errors import BadInput


def add_arguments(parser: ArgumentParser) -> None:
    add_session_flags(parser)
    if isinstance(parser, Parser):
        parser.short_help = TUI_HELP
    parser.add_argument(
        "--attach",
        metavar="ID",
        help="join the session that another terminal has open, or one of a service, by its address",
    )


def run(args: Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(
            "refold tui needs a terminal. In a pipe or a script: refold -p MESSAGE"
        )
    if args.attach is not None:
        from refold.cli.attach import join

        return join(args.attach, full=True)
    args.display = "full"
    return session(args)
