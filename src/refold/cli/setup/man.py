"""`refold man`: the manual page, made from the parsers that read the command line."""

from argparse import Namespace

from refold import __version__
from refold.cli.out import write
from refold.cli.subparsers import Subparsers


def add_parser(commands: Subparsers) -> None:
    commands.add_parser("man", help="print the manual page: refold man | man -l -")


def run(found: Namespace) -> int:
    write(page())
    return 0


def page() -> str:
    from refold.cli.setup.described import described
    from refold.views.manual import manual

    return manual(described(), __version__)
