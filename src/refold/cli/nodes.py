"""`refold worker` and `refold web-node`: run sessions, and show them, behind one database.

Any number of both share the database of REFOLD_SESSIONS; `client.nodes` is what they are made of. What
a web node serves is what `refold serve` does.
"""

import os
import signal
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from msgspec.structs import replace

from refold.app.session_index import session_index, tenant_sessions
from refold.cli.launch import launch_at
from refold.cli.serve import (
    DEFAULT_PORT,
    add_listen_flags,
    listen_options,
    print_token,
    serve_host,
)
from refold.cli.subcommands import SubcommandEntry
from refold.client.host import HostPaths
from refold.client.launch import real_directories
from refold.config.paths import DEFAULT_TENANT, Paths, current_directory, paths
from refold.config.tenant_keys import read_tenant_keys
from refold.errors import BadInput
from refold.headless.streams import print_error

if TYPE_CHECKING:
    from refold.client.host import Host
    from refold.client.nodes.following_files import FollowingFiles
    from refold.client.nodes.services import Services
    from refold.client.nodes.worker_host import WorkerHost
    from refold.journal.session_index import SessionIndex
    from refold.server.listening import ListenOptions

TEMPORAL_VARIABLE, NATS_VARIABLE = "REFOLD_TEMPORAL", "REFOLD_NATS"
_DRAIN_SECONDS = 30


def _add_common_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-m", "--model", default="", help="model of new conversations")
    parser.add_argument("--script", metavar="FILE", help="take the responses from a file")
    parser.add_argument("--root", action="append", default=[], metavar="DIR",
        help="let conversations begin only below this directory; repeatable")  # fmt: skip
    parser.add_argument("--temporal", default="", metavar="HOST:PORT",
        help=f"have Temporal say which worker runs a session (default: {TEMPORAL_VARIABLE}, "
        "else the queue of the database)")  # fmt: skip
    parser.add_argument("--nats", default="", metavar="URL",
        help=f"carry live text over NATS (default: {NATS_VARIABLE}, which keeps a password out of "
        "the list of processes, else the database)")  # fmt: skip


def add_worker_arguments(parser: ArgumentParser) -> None:
    _add_common_arguments(parser)
    parser.add_argument("--secrets-dir", type=Path, metavar="DIR",
        help="read the keys of the tenant from DIR/TENANT/PROVIDER, and from PROVIDER.url beside it the "
        "address of a gateway")  # fmt: skip
    parser.add_argument("--drain-seconds", type=float, default=_DRAIN_SECONDS, metavar="N",
        help=f"after SIGTERM or `refold cluster drain`, wait so long for running steps (default: "
        f"{_DRAIN_SECONDS}); other workers continue all turns")  # fmt: skip


def add_web_node_arguments(parser: ArgumentParser) -> None:
    add_listen_flags(parser, DEFAULT_PORT)
    _add_common_arguments(parser)
    parser.add_argument("--person", default="", metavar="NAME",
        help="the person for whom the printed links are, as sessions name them")  # fmt: skip
    parser.add_argument("--oidc", type=Path, metavar="FILE",
        help="let people log in at the identity provider that this file names, instead of with a link")  # fmt: skip
    parser.set_defaults(terminal=False, addresses=False, drain=False)


def run_worker(args: Namespace) -> int:
    """Run sessions until SIGTERM or SIGINT."""
    services = _services(args)
    from refold.client.nodes.worker_host import WorkerHost

    directory: Path | None = args.secrets_dir
    places = replace(paths(os.environ), tenant_keys=directory and directory.absolute())
    read_tenant_keys(places)  # a worker without its keys does not start
    index = session_index(places)
    files = _following_files(places, index)
    start = partial(launch_at, args, places, index)
    host = WorkerHost(services, index, _host_paths(args), start, files=files)
    whose = f"the tenant {places.tenant} in " if places.tenant != DEFAULT_TENANT else ""
    anyio.run(_work, host, f"{whose}{services.database.place}", args.drain_seconds)
    return 0


def _following_files(places: Paths, home: "SessionIndex") -> "FollowingFiles | None":
    """What brings files of sessions to this worker; None without a bucket.

    Raises `BadInput` for one that cannot be used: a web node only reads, and starts all the same.
    """
    from refold.client.nodes.following_files import FollowingFiles
    from refold.cluster.sessions import PostgreSQLSessions

    if not isinstance(home, PostgreSQLSessions) or home.objects is None:
        return None
    home.objects.check()
    return FollowingFiles(home.objects, places, os.environ, print_error)


async def _work(host: "WorkerHost", place: str, drain_seconds: float) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with host.run():
            print_error(f"works for {place}; Ctrl+C ends it")
            async with anyio.create_task_group() as group:

                async def end_with(wait: Callable[[], Awaitable[object]]) -> None:
                    await wait()
                    group.cancel_scope.cancel()

                group.start_soon(end_with, signals.__anext__)
                group.start_soon(end_with, host.wait_for_drain)
            print_error(
                "takes no further sessions, and hands over those it has after their step"
            )
            with anyio.move_on_after(drain_seconds):
                await host.drain()


def run_web_node(args: Namespace) -> int:
    """Show the sessions of the database, and take orders, until SIGTERM or SIGINT."""
    if paths(os.environ).cluster_key is not None:
        raise BadInput(
            "REFOLD_CLUSTER_KEY is set, and a web node must not have that key: give it to workers only"
        )
    setup = listen_options(args)
    if args.oidc:
        return _serve_people(args, setup)
    if args.show_token:
        return print_token(args)
    services = _services(args)
    from refold.client.nodes.web_host import WebHost

    places = paths(os.environ)
    index = session_index(places)
    start = partial(launch_at, args, places, index)
    host = WebHost(services, index, _host_paths(args), start)
    return serve_host(args, host, setup)


def _serve_people(args: Namespace, setup: "ListenOptions") -> int:
    """Show each person the sessions of their tenant."""
    services = _services(args)
    from refold.client.people.oidc import OidcClient
    from refold.cluster.people import People
    from refold.config.oidc_settings import load_oidc_settings
    from refold.server.people.tenants import serve_people

    client = OidcClient(load_oidc_settings(args.oidc), os.environ)

    def tell(address: str) -> None:
        print_error(f"serving at {address}; Ctrl+C ends it")

    open_host = partial(_open_tenant, args, services)
    anyio.run(serve_people, People(services.database), client, open_host, setup, tell)
    return 0


@asynccontextmanager
async def _open_tenant(
    args: Namespace, services: "Services", tenant: str
) -> AsyncGenerator["Host"]:
    """The sessions of a tenant, in a directory that stays empty."""
    from refold.client.nodes.web_host import WebHost
    from refold.cluster.database import Database

    places = replace(paths(os.environ), tenant=tenant)
    database = Database(places.sessions, tenant)
    index = tenant_sessions(places, database)
    start = partial(launch_at, args, places, index)
    try:
        with tempfile.TemporaryDirectory(prefix="refold-web-") as empty:
            where = HostPaths(Path(empty), places.server, places.checkpoints)
            own = replace(services, database=database)
            yield WebHost(own, index, where, start, is_shared=True)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(database.close)


def _services(args: Namespace) -> "Services":
    from refold.client.nodes.services import Services
    from refold.cluster.database import database

    places = paths(os.environ)
    url = places.sessions
    if not url:
        raise BadInput(
            "REFOLD_SESSIONS names no database, in which web nodes and workers meet: set it, as "
            "in postgresql://user@host/database, after `refold cluster init`"
        )
    chosen = database(url, places.tenant)
    chosen.check()
    temporal = args.temporal or os.environ.get(TEMPORAL_VARIABLE, "")
    nats = args.nats or os.environ.get(NATS_VARIABLE, "")
    return Services(chosen, temporal, nats, print_error)


def _host_paths(args: Namespace) -> HostPaths:
    places = paths(os.environ)
    roots = tuple(map(Path, real_directories(args.root)))
    return HostPaths(current_directory(), places.server, places.checkpoints, roots)


WORKER_COMMAND = SubcommandEntry(add_worker_arguments, run_worker)
WEB_NODE = SubcommandEntry(add_web_node_arguments, run_web_node)
