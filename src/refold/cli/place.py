"""`refold place --stdio`: the other end of a pipe from a refold on another machine.

`refold --workspace` starts it where it is installed; elsewhere it sends the same modules itself. The
work is in `place/far/`. Nothing is decided here: the other side has the keys, the rules and the
journal.
"""

from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--stdio",
        action="store_true",
        required=True,
        help="serve standard input and output",
    )


def run(args: Namespace) -> int:
    from refold.place.far.server import serve_installed

    serve_installed()
    return 0
