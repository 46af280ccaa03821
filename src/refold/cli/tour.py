"""`refold tour`: a scripted session that shows how refold works."""

from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """It takes none."""


def run(found: Namespace) -> int:
    from refold.cli.first_run.begin import tour

    return tour(found)
