"""`refold cluster`: prepares and checks the database and the bucket of a service.

REFOLD_SESSIONS names the database, and REFOLD_BUCKET the bucket.

`cluster.schema` has the tables and their migrations.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec

from refold.app.session_index import tenant_sessions
from refold.cli.nodes import NATS_VARIABLE, TEMPORAL_VARIABLE
from refold.config.paths import paths
from refold.errors import BadInput
from refold.headless.streams import print_error, write

if TYPE_CHECKING:
    from refold.cluster.database import Database

_DRAIN_SECONDS = 60  # longer than a worker waits for its steps
_WITHOUT_BUCKET = (
    "Large content is stored in the database, up to 100 MiB each, and files do not follow a session to "
    "another worker: REFOLD_BUCKET can name a bucket for both.\n"
)


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, about in (
        ("init", "make the tables of refold, or update them"),
        (
            "check",
            "check the database, the bucket, Temporal and NATS; exit code 1 if something is wrong",
        ),
        ("status", "show orders, sessions at work and workers, as JSON"),
        (
            "sweep",
            "move large content from the database to the bucket, and delete there what belongs to no session",
        ),
    ):
        subparser = subparsers.add_parser(name, help=about)
        subparser.add_argument("url", nargs="?", default="", metavar="URL",
            help="postgresql://user@host/database (default: REFOLD_SESSIONS)")  # fmt: skip
    drain = subparsers.add_parser(
        "drain", help="end workers; others continue their sessions"
    )
    drain.add_argument("workers", nargs="*", metavar="WORKER",
        help="the id of a worker, as `refold cluster status` prints it")  # fmt: skip
    drain.add_argument(
        "--all", action="store_true", help="drain every worker of the tenant"
    )
    drain.add_argument("--seconds", type=float, default=_DRAIN_SECONDS, metavar="N",
        help=f"wait at most N seconds for their end (default: {_DRAIN_SECONDS}); exit code 1 if one still runs")  # fmt: skip
    drain.set_defaults(url="")


def run(args: Namespace) -> int:
    from refold.cluster.database import database

    url = args.url or paths(os.environ).sessions
    if not url:
        raise BadInput(
            "no database is named: give its URL, or set REFOLD_SESSIONS, as in "
            "postgresql://user@host/database"
        )
    service_database = database(url, paths(os.environ).tenant)
    if args.what == "init":
        service_database.prepare()
        write(
            f"{service_database.place} is prepared. To use it: export REFOLD_SESSIONS='URL'\n"
        )
        return 0
    if args.what == "drain":
        return anyio.run(_drain, service_database, args)
    if args.what == "status":
        from refold.cluster.tenant_status import read_status

        status = anyio.run(read_status, service_database)
        write(msgspec.json.encode(status).decode() + "\n")
        return 0
    if args.what == "sweep":
        return _sweep(service_database)
    return _check(service_database, url)


def _sweep(service_database: "Database") -> int:
    """Move the tenant's blobs from the database to the bucket. Return the exit code.

    Delete blobs in the bucket whose session no longer exists. Raises `BadInput` without a
    bucket.
    """
    places = paths(os.environ)
    if not places.bucket:
        raise BadInput(
            "REFOLD_BUCKET names no bucket, so nothing can be moved: set it, as in s3://BUCKET"
        )
    swept = tenant_sessions(places, service_database).blobs.sweep()
    write(
        f"{swept.moved} blobs were moved to {places.bucket}, and {swept.deleted} deleted\n"
    )
    return 0


def _check(service_database: "Database", url: str) -> int:
    """Print the problems of the database, bucket and servers. Return 1 for any, otherwise 0."""
    from refold.cluster.database_rights import find_excess_rights
    from refold.cluster.engine_ports import open_ports as engine_problems

    temporal = os.environ.get(TEMPORAL_VARIABLE, "")
    nats = os.environ.get(NATS_VARIABLE, "")
    problems = [
        *find_excess_rights(service_database, url),
        *_bucket_problems(service_database),
        *engine_problems(temporal, nats),
    ]
    for problem in problems:
        print_error(problem)
    if not problems:
        write(f"{service_database.place} is in order.\n")
    if not paths(os.environ).bucket:
        write(_WITHOUT_BUCKET)
    return 1 if problems else 0


def _bucket_problems(service_database: "Database") -> Sequence[str]:
    """Return what is wrong with the bucket of the service; () if no bucket is set."""
    url = paths(os.environ).bucket
    if not url:
        return ()
    from refold.cluster.bucket import is_unencrypted, tenant_objects

    problems = list[str]()
    try:
        tenant_objects(url, service_database.tenant, os.environ).check()
    except BadInput as error:
        problems.append(str(error))
    if is_unencrypted(os.environ):
        problems.append(
            "AWS_ENDPOINT_URL begins with http://, so the network between can read what goes to "
            f"{url}: use https://"
        )
    return problems


async def _drain(database: "Database", args: Namespace) -> int:
    """Drain the named workers. Return 1 if one still runs after `args.seconds`, otherwise 0."""
    from refold.cluster.worker_rows import WorkerStatus, drain, list_workers

    workers = {worker.id: worker for worker in await list_workers(database)}
    named = list(workers) if args.all else args.workers
    unknown = [id_ for id_ in named if id_ not in workers]
    if unknown or not named:
        problem = f"there is no worker {unknown[0]!r}" if unknown else "no worker is named"
        present = "; ".join(f"{w.id}, {w.place}" for w in workers.values()) or "none"
        raise BadInput(f"{problem}: give ids, or --all. Present: {present}")

    def report_end(worker: WorkerStatus) -> None:
        write(f"{worker.id} ({worker.place}) has ended\n")
        workers.pop(worker.id)

    with anyio.move_on_after(args.seconds) as time_limit:
        await drain(database, named, report_end)
    if not time_limit.cancelled_caught:
        return 0
    for id_ in named:
        if worker := workers.get(id_):
            print_error(f"{id_} ({worker.place}) still drains {worker.sessions} sessions")
    return 1
