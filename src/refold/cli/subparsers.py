"""What a door needs to know of argparse to add its own subcommand."""

from argparse import ArgumentParser
from typing import Protocol


class Subparsers(Protocol):
    """What argparse's `add_subparsers` gives, as far as we use it."""

    def add_parser(self, name: str, *, help: str) -> ArgumentParser: ...
