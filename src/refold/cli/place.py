"""`refold place --stdio`: works in a workspace for a refold on another machine.

The other refold (`refold --workspace`) starts this command through a pipe if refold is
installed on this machine. Otherwise the other refold sends the modules of `place/far/`, which
do the work in both cases. This command decides nothing: keys, rules and the journal are on the
other machine.
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
