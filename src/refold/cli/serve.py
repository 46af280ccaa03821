"""`refold serve` and `refold web`: serve conversations to web pages and programs.

`refold web` also opens the page in the browser. This module reads the options and prints the
link. `refold.server` implements the server, and needs the extra `server`.
"""

import io
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from refold.app.session_index import session_index
from refold.cli.launch import launch_at
from refold.cli.parser import listen_port
from refold.cli.subcommands import SubcommandEntry
from refold.client.due_schedules import DueSchedules, due_schedules
from refold.client.elsewhere import AddressRights
from refold.client.host import Host, HostPaths, is_within
from refold.client.launch import real_directories
from refold.client.webhooks import Webhooks
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, paths
from refold.console.open_page import NO_BROWSER, open_page
from refold.errors import BadInput, RefoldError
from refold.headless.streams import print_error, write
from refold.place.environment import shell_environment

if TYPE_CHECKING:
    from refold.server.access import Access
    from refold.server.listening import ListenOptions
    from refold.server.terminals import Terminals

DEFAULT_PORT = 3500
SECRET_FILE = "server.key"
_MISSING_EXTRA = (
    "the server needs packages that are not installed here: pip install 'refold[server]', or, "
    "in a checkout, make run"
)


def add_arguments(parser: ArgumentParser) -> None:
    add_listen_flags(parser, DEFAULT_PORT)
    parser.add_argument(
        "--drain",
        action="store_true",
        help="on exit, let running turns finish instead of stopping them",
    )
    parser.add_argument("-m", "--model", default="", help="model of new conversations")
    parser.add_argument(
        "--script", metavar="FILE", help="take the model's responses from a script"
    )
    parser.add_argument("--root", action="append", default=[], metavar="DIR",
        help="let conversations begin only below this directory; repeatable")  # fmt: skip
    parser.add_argument("--person", default="", metavar="NAME",
        help="the person of the printed links; sessions record this name")  # fmt: skip
    parser.add_argument("--addresses", action="store_true",
        help="let conversations begin at any address (ssh://…, cmd:…), which runs programs here")  # fmt: skip
    parser.add_argument("--terminal", action="store_true",
        help="let the developer page open terminals: shells of yours, without a sandbox")  # fmt: skip


def add_listen_flags(parser: ArgumentParser, port: int) -> None:
    """Add the flags for the address and the token of a server; `port` is the default port."""
    parser.add_argument(
        "--port",
        type=listen_port,
        default=port,
        help=f"port (default: {port}; 0: a free one)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: this machine only)",
    )
    parser.add_argument(
        "--name", action="append", default=[], metavar="HOST",
        help="another host name under which the server is reached",
    )  # fmt: skip
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate, as PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    parser.add_argument(
        "--plain-http", action="store_true",
        help="accept other machines without TLS; the traffic can be read on its way",
    )  # fmt: skip
    parser.add_argument(
        "--new-keys", action="store_true", help="end all earlier cookies and the token"
    )
    parser.add_argument(
        "--show-token", action="store_true", help="print the token for programs, and exit"
    )


def run_web(args: Namespace) -> int:
    """Serve, and open the page in the browser once the server listens.

    Return the exit code.
    """
    return run(args, opens=True)


def run(args: Namespace, *, opens: bool = False) -> int:
    """Serve until a signal. Print the links on stdout once the server listens.

    Return the exit code. If `opens`, also open the page in the browser.
    """
    setup = listen_options(args, drain=args.drain)
    places = paths(os.environ)
    if args.show_token:
        return print_token(args)
    roots = tuple(map(Path, real_directories(args.root)))
    directories = HostPaths(
        current_directory(),
        places.server,
        places.checkpoints,
        roots,
        _address_rights(args, setup),
    )
    if roots and not is_within(str(current_directory()), roots):
        raise BadInput(
            f"{current_directory()} is not below a --root: start refold serve in a folder below one"
        )
    index = session_index(places)
    host = Host(
        index,
        directories,
        partial(launch_at, args, places, index),
        is_joinable=True,
    )
    # None if this process does not run schedules
    due = due_schedules(os.environ, args.script, print_error)
    webhooks = Webhooks(os.environ, due.check_now if due is not None else lambda: None)
    return serve_host(args, host, setup, due, webhooks, opens=opens)


def print_token(args: Namespace) -> int:
    """Print the token with which programs log in at the server. Return the exit code."""
    write(f"{_load_access(args).bearer}\n")
    return 0


def _load_access(args: Namespace) -> "Access":
    """Return the keys of the server. With --new-keys, the earlier keys are revoked first."""
    try:
        from refold.server import access
    except ImportError as error:
        raise RefoldError(f"{_MISSING_EXTRA} ({error})") from error
    secret = paths(os.environ).state / SECRET_FILE
    if args.new_keys:
        access.revoke_all(secret)
    return access.load_access(secret)


def serve_host(
    args: Namespace,
    host: Host,
    setup: "ListenOptions",
    due: DueSchedules | None = None,
    webhooks: Webhooks | None = None,
    *,
    opens: bool = False,
) -> int:
    """Serve the conversations of `host` until a signal, and return the exit code.

    Once the server listens, links to the pages are printed. The token in a link is valid for
    one use. `due` runs schedules, and `webhooks` receives webhooks.
    """
    from refold.server.app import serve

    access = _load_access(args)
    redirect_file = paths(os.environ).state / "server" / "open.html"
    # kept, because Python warns about a process that is forgotten while it runs
    browser: subprocess.Popen[bytes] | None = None

    def print_address(address: str) -> None:
        """Print links to the pages, and open one in the browser if `opens`."""
        nonlocal browser
        for path, page in (("/", "page"), ("/dev", "developer page")):
            write(
                f"{page + ':':16} {address}{path}#launch={access.new_launch(args.person)}\n"
            )
        if setup.beyond_loopback and sys.stdout.isatty():
            print_qr_code(f"{address}/#launch={access.new_launch(args.person)}")
        if opens:
            link = f"{address}/#launch={access.new_launch(args.person)}"
            browser = open_page(link, redirect_file, os.environ)
            if browser is None:
                print_error(NO_BROWSER)
        print_error(f"serving at {address}; Ctrl+C ends it")

    run_server = partial(
        serve, host, access, setup, print_address, webhooks, _terminals(args, host)
    )
    try:
        anyio.run(_serve_with_schedules, run_server, due)
    finally:
        redirect_file.unlink(missing_ok=True)
    return 0


def _address_rights(args: Namespace, setup: "ListenOptions") -> AddressRights:
    """Return the addresses of remote workspaces in which conversations may begin.

    Addresses of earlier sessions are allowed only if no one but the user can reach the server.
    """
    from refold.server.access import PAGE_PERSON
    from refold.server.terminals import check_not_shared

    if args.addresses:
        check_not_shared(setup, "--addresses lets the page run programs as you")
    loaded = load_folder_settings(current_directory(), paths(os.environ), os.environ, {})
    return AddressRights(
        loaded.settings.workspaces,
        recent=not (setup.beyond_loopback or setup.names),
        free=args.addresses,
        person=args.person or PAGE_PERSON,
    )


def _terminals(args: Namespace, host: Host) -> "Terminals | None":
    """Return the terminals of the developer page; None without --terminal."""
    from refold.server.terminals import Terminals

    if not args.terminal:
        return None
    return Terminals(host, shell_environment(os.environ), args.person)


async def _serve_with_schedules(
    serve: Callable[[], Awaitable[None]], due: DueSchedules | None
) -> None:
    """Run the server until it ends, and until then also the schedules that are due."""
    async with anyio.create_task_group() as group:
        if due is not None:
            group.start_soon(due.run)
        await serve()
        group.cancel_scope.cancel()


def print_qr_code(link: str) -> None:
    """Print the link as a QR code, for the camera of another device."""
    import segno

    drawn = io.StringIO()
    segno.make(link, micro=False).terminal(out=drawn, compact=True)
    write(f"for another device:\n{drawn.getvalue()}")


def listen_options(
    args: Namespace, *, drain: bool = False, websockets: bool = True
) -> "ListenOptions":
    """Return the address to listen on, and the other options of the server.

    Raises `BadInput` if other machines could read the data on the network.
    """
    try:
        from refold.server.listening import ListenOptions
    except ImportError as error:
        raise RefoldError(f"{_MISSING_EXTRA} ({error})") from error
    if bool(args.tls_cert) != bool(args.tls_key):
        raise BadInput("--tls-cert and --tls-key go together: give both files")
    setup = ListenOptions(
        host=args.host, port=args.port, names=tuple(args.name),
        certificate=args.tls_cert, key=args.tls_key, drain=drain, websockets=websockets,
    )  # fmt: skip
    if setup.beyond_loopback and not setup.tls and not args.plain_http:
        raise BadInput(
            f"--host {args.host} is reached from other machines, and the traffic could be "
            "read on its way: give --tls-cert and --tls-key, or, in a network that you trust, "
            "--plain-http"
        )
    return setup


WEB = SubcommandEntry(add_arguments, run_web)
