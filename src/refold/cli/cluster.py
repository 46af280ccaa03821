"""`refold cluster`: prepares and checks the database of REFOLD_SESSIONS, and the bucket of REFOLD_BUCKET.

The tables and their migrations are in `cluster.schema`.
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
        one = subparsers.add_parser(name, help=about)
        one.add_argument("url", nargs="?", default="", metavar="URL",
            help="postgresql://user@host/database (default: REFOLD_SESSIONS)")  # fmt: skip
    drain = subparsers.add_parser(
        "drain", help="have workers end: others continue their sessions"
    )
    drain.add_argument("workers", nargs="*", metavar="WORKER",
        help="the id of a worker, as `refold cluster status` prints it")  # fmt: skip
    drain.add_argument(
        "--all", action="store_true", help="drain every worker of the tenant"
    )
    drain.add_argument("--seconds", type=float, default=_DRAIN_SECONDS, metavar="N",
        help=f"wait so long for their end (default: {_DRAIN_SECONDS}); exit code 1 if one runs on")  # fmt: skip
    drain.set_defaults(url="")


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
    if args.what == "drain":
        return anyio.run(_drain, chosen, args)
    if args.what == "status":
        from refold.cluster.tenant_status import read_status

        status = anyio.run(read_status, chosen)
        write(msgspec.json.encode(status).decode() + "\n")
        return 0
    if args.what == "sweep":
        return _sweep(chosen)
    return _check(chosen, url)


def _sweep(chosen: "Database") -> int:
    """Sweep the blobs of the tenant of REFOLD_TENANT."""
    places = paths(os.environ)
    if not places.bucket:
        raise BadInput(
            "REFOLD_BUCKET names no bucket, so nothing can be moved: set it, as in s3://BUCKET"
        )
    swept = tenant_sessions(places, chosen).blobs.sweep()
    write(
        f"{swept.moved} blobs were moved to {places.bucket}, and {swept.deleted} deleted\n"
    )
    return 0


def _check(chosen: "Database", url: str) -> int:
    from refold.cluster.database_rights import find_excess_rights
    from refold.cluster.engine_ports import open_ports

    temporal, nats = (
        os.environ.get(name, "") for name in (TEMPORAL_VARIABLE, NATS_VARIABLE)
    )
    problems = [
        *find_excess_rights(chosen, url),
        *_bucket_problems(chosen),
        *open_ports(temporal, nats),
    ]
    for problem in problems:
        print_error(problem)
    if not problems:
        write(f"{chosen.place} is in order.\n")
    if not paths(os.environ).bucket:
        write(_WITHOUT_BUCKET)
    return 1 if problems else 0


def _bucket_problems(chosen: "Database") -> Sequence[str]:
    url = paths(os.environ).bucket
    if not url:
        return ()
    from refold.cluster.bucket import is_unencrypted, tenant_objects

    problems = list[str]()
    try:
        tenant_objects(url, chosen.tenant, os.environ).check()
    except BadInput as error:
        problems.append(str(error))
    if is_unencrypted(os.environ):
        problems.append(
            "AWS_ENDPOINT_URL begins with http://, so the network between can read what goes to "
            f"{url}: use https://"
        )
    return problems


async def _drain(database: "Database", args: Namespace) -> int:
    from refold.cluster.worker_rows import WorkerStatus, drain, list_workers

    workers = {worker.id: worker for worker in await list_workers(database)}
    named = list(workers) if args.all else args.workers
    unknown = [id_ for id_ in named if id_ not in workers]
    if unknown or not named:
        wrong = f"there is no worker {unknown[0]!r}" if unknown else "no worker is named"
        present = "; ".join(f"{w.id}, {w.place}" for w in workers.values()) or "none"
        raise BadInput(f"{wrong}: give ids, or --all. Present: {present}")

    def show(worker: WorkerStatus) -> None:
        write(f"{worker.id} ({worker.place}) has ended\n")
        workers.pop(worker.id)

    with anyio.move_on_after(args.seconds) as patience:
        await drain(database, named, show)
    for id_ in named if patience.cancelled_caught else ():
        if worker := workers.get(id_):
            print_error(f"{id_} ({worker.place}) still drains {worker.sessions} sessions")
    return 1 if patience.cancelled_caught else 0
