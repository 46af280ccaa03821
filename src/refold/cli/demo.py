"""`refold demo`: one real task in a scratch directory, with the embedded model."""

from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-m", "--model", metavar="PROVIDER/MODEL", help="use this model instead"
    )


def run(found: Namespace) -> int:
    from refold.cli.first_run.begin import demo

    return demo(found)
