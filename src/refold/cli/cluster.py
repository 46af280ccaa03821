"""`refold cluster`: prepares and checks the database of REFOLD_SESSIONS.

The tables and their migrations are in `cluster.schema`.
"""

import os
from argparse import ArgumentParser, Namespace

import anyio
import msgspec

from refold.cli.nodes import NATS_VARIABLE, TEMPORAL_VARIABLE
from refold.config.paths import paths
from refold.errors import BadInput
from refold.headless.streams import print_error, write


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, about in (
        ("init", "make the tables of refold, or update them"),
        (
            "check",
            "check the database, Temporal and NATS; exit code 1 if something is wrong",
        ),
        ("status", "show orders, sessions at work and workers, as JSON"),
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
    chosen = database(url, paths(os.environ).tenant)
    if args.what == "init":
        chosen.prepare()
        write(f"{chosen.place} is prepared. To use it: export REFOLD_SESSIONS='URL'\n")
        return 0
    if args.what == "status":
        from refold.cluster.tenant_status import read_status

        status = anyio.run(read_status, chosen)
        write(msgspec.json.encode(status).decode() + "\n")
        return 0
    from refold.cluster.engine_ports import open_ports

    temporal, nats = (
        os.environ.get(name, "") for name in (TEMPORAL_VARIABLE, NATS_VARIABLE)
    )
    problems = [*chosen.problems(), *open_ports(temporal, nats)]
    for problem in problems:
        print_error(problem)
    if not problems:
        write(f"{chosen.place} is in order.\n")
    return 1 if problems else 0
