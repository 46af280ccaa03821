"""`refold worker` runs sessions, and `refold web-node` serves them to browsers and programs.

Any number of workers and web nodes share one database, which REFOLD_SESSIONS names. A web node
serves the same pages as `refold serve`. `client.nodes` implements both.
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
from refold.client.elsewhere import AddressRights
from refold.client.host import HostPaths
from refold.client.launch import real_directories
from refold.config.folder_settings import load_folder_settings
from refold.config.load import load
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

TEMPORAL_VARIABLE = "REFOLD_TEMPORAL"
NATS_VARIABLE = "REFOLD_NATS"
_DRAIN_SECONDS = 30


def _add_common_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-m", "--model", default="", help="model of new conversations")
    parser.add_argument(
        "--script", metavar="FILE", help="take the model's responses from a script"
    )
    parser.add_argument("--root", action="append", default=[], metavar="DIR",
        help="let conversations begin only below this directory; repeatable")  # fmt: skip
    parser.add_argument("--temporal", default="", metavar="HOST:PORT",
        help=f"let Temporal decide which worker runs a session (default: {TEMPORAL_VARIABLE}, "
        "else the queue of the database)")  # fmt: skip
    parser.add_argument("--nats", default="", metavar="URL",
        help=f"carry live text over NATS (default: {NATS_VARIABLE}, which keeps a password out of "
        "the list of processes, else the database)")  # fmt: skip


def add_worker_arguments(parser: ArgumentParser) -> None:
    _add_common_arguments(parser)
    parser.add_argument("--secrets-dir", type=Path, metavar="DIR",
        help="read the keys of the tenant from DIR/TENANT/PROVIDER, with the address of a gateway in "
        "PROVIDER.url")  # fmt: skip
    parser.add_argument("--drain-seconds", type=float, default=_DRAIN_SECONDS, metavar="N",
        help=f"after SIGTERM or `refold cluster drain`, wait at most N seconds for running steps (default: "
        f"{_DRAIN_SECONDS}); other workers continue the turns")  # fmt: skip


def add_web_node_arguments(parser: ArgumentParser) -> None:
    add_listen_flags(parser, DEFAULT_PORT)
    _add_common_arguments(parser)
    parser.add_argument("--person", default="", metavar="NAME",
        help="the person of the printed links; sessions record this name")  # fmt: skip
    parser.add_argument("--oidc", type=Path, metavar="FILE",
        help="let people log in at the identity provider that this file names, instead of with a link")  # fmt: skip
    parser.set_defaults(terminal=False, addresses=False, drain=False)


def run_worker(args: Namespace) -> int:
    """Run sessions of the database until SIGTERM or SIGINT. Return the exit code."""
    services = _services(args)
    from refold.app.session_schedules import open_book
    from refold.client.nodes.worker_host import WorkerHost

    directory: Path | None = args.secrets_dir
    places = replace(
        paths(os.environ), tenant_keys=directory.absolute() if directory else None
    )
    read_tenant_keys(places)  # raises if they cannot be read
    index = session_index(places)
    files = _following_files(places, index)
    start = partial(launch_at, args, places, index)
    host = WorkerHost(services, index, _host_paths(args), start, files=files)
    host.run_schedules(open_book(places, os.environ))
    tenant_text = (
        f"the tenant {places.tenant} in " if places.tenant != DEFAULT_TENANT else ""
    )
    anyio.run(_work, host, f"{tenant_text}{services.database.place}", args.drain_seconds)
    return 0


def _following_files(places: Paths, home: "SessionIndex") -> "FollowingFiles | None":
    """Return the object that transfers files of sessions to this worker.

    Return None if no bucket is set. Raises `BadInput` if the bucket cannot be used.
    """
    from refold.client.nodes.following_files import FollowingFiles
    from refold.cluster.sessions import PostgreSQLSessions

    if not isinstance(home, PostgreSQLSessions) or home.objects is None:
        return None
    home.objects.check()
    return FollowingFiles(home.objects, places, os.environ, print_error)


async def _work(host: "WorkerHost", place: str, drain_seconds: float) -> None:
    """Run sessions until a signal or `refold cluster drain`.

    Then hand the sessions over to other workers, for at most `drain_seconds`.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with host.run():
            print_error(f"works for {place}; Ctrl+C ends it")
            async with anyio.create_task_group() as group:
                scope = group.cancel_scope
                # `__anext__` returns at the first signal
                group.start_soon(_cancel_after, signals.__anext__, scope)
                group.start_soon(_cancel_after, host.wait_for_drain, scope)
            print_error(
                "takes no further sessions, and hands over those it has after their step"
            )
            with anyio.move_on_after(drain_seconds):
                await host.drain()


async def _cancel_after(
    wait: Callable[[], Awaitable[object]], scope: anyio.CancelScope
) -> None:
    """Call `wait`, and cancel `scope` when it has returned."""
    await wait()
    scope.cancel()


def run_web_node(args: Namespace) -> int:
    """Serve the sessions of the database until SIGTERM or SIGINT. Return the exit code."""
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
    """Serve each person, after a login, the sessions of their tenant. Return the exit code."""
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
    """Open the sessions of a tenant, and yield the `Host` that serves them.

    The default workspace of the `Host` is an empty temporary directory.
    """
    from refold.client.nodes.web_host import WebHost
    from refold.cluster.database import Database

    places = replace(paths(os.environ), tenant=tenant)
    database = Database(places.sessions, tenant)
    index = tenant_sessions(places, database)
    start = partial(launch_at, args, places, index)
    try:
        with tempfile.TemporaryDirectory(prefix="refold-web-") as empty:
            host_paths = HostPaths(Path(empty), places.server, places.checkpoints)
            tenant_services = replace(services, database=database)
            yield WebHost(tenant_services, index, host_paths, start, is_shared=True)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(database.close)


def _services(args: Namespace) -> "Services":
    """Return the services that nodes share. Raises `BadInput` if no database is set."""
    places = paths(os.environ)
    if not places.sessions:
        raise BadInput(
            "REFOLD_SESSIONS names no database, in which web nodes and workers meet: set it, as "
            "in postgresql://user@host/database, after `refold cluster init`"
        )
    services = find_services(args.temporal, args.nats)
    otel = load(places.settings, os.environ, {}).settings.otel
    if not otel.endpoint:
        return services
    from refold.client.nodes.node_metrics import metrics_export

    return replace(services, metrics=metrics_export(otel, os.environ, print_error))


def find_services(temporal: str = "", nats: str = "") -> "Services":
    """Return the database, Temporal and NATS that the nodes of a service share.

    `temporal` and `nats` are addresses; "" means the address that the environment names.
    """
    from refold.client.nodes.services import Services
    from refold.cluster.database import database

    places = paths(os.environ)
    shared_database = database(places.sessions, places.tenant)
    shared_database.check()
    shared_database.outage.report = print_error
    temporal = temporal or os.environ.get(TEMPORAL_VARIABLE, "")
    nats = nats or os.environ.get(NATS_VARIABLE, "")
    return Services(shared_database, temporal, nats, print_error)


def _host_paths(args: Namespace) -> HostPaths:
    """Return the directories and addresses in which conversations of this node may begin."""
    places = paths(os.environ)
    roots = tuple(map(Path, real_directories(args.root)))
    # Only the addresses that the settings name are allowed: all others are for the single user
    # of a server of one machine.
    loaded = load_folder_settings(current_directory(), places, os.environ, {})
    rights = AddressRights(loaded.settings.workspaces)
    return HostPaths(current_directory(), places.server, places.checkpoints, roots, rights)


WORKER_COMMAND = SubcommandEntry(add_worker_arguments, run_worker)
WEB_NODE = SubcommandEntry(add_web_node_arguments, run_web_node)
