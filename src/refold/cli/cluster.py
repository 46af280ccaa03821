"""`refold cluster`: prepares and checks the database of REFOLD_SESSIONS.

The tables and their migrations are in `cluster.schema`.
"""

import os
from argparse import ArgumentParser, Namespace

from refold.config.paths import paths
from refold.errors import BadInput
from refold.headless.streams import print_error, write


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, about in (
        ("init", "make the tables of refold, or update them"),
        ("check", "check the database; exit code 1 if something is wrong"),
    ):
        one = subparsers.add_parser(name, help=about)
        one.add_argument("url", nargs="?", default="", metavar="URL",
            help="postgresql://user@host/database (default: REFOLD_SESSIONS)")  # fmt: skip


def run(args: Namespace) -> int:
    from refold.cluster.database import database

    url = args.url or paths(os.environ).sessions
    if not url:
        raise BadInput(
            "no database is named: give its URL, or set REFOLD_SESSIONS, as in "
            "postgresql://user@host/database"
        )
    chosen = database(url)
    if args.what == "init":
        chosen.prepare()
        write(f"{chosen.place} is prepared. To use it: export REFOLD_SESSIONS='URL'\n")
        return 0
    problems = chosen.problems()
    for problem in problems:
        print_error(problem)
    if not problems:
        write(f"{chosen.place} is in order.\n")
    return 1 if problems else 0
