"""`refold mcp serve`: serves tools of refold to other agents, on stdio or over HTTP.

This module reads the options. `refold.task_server` has the tools, and needs the extra `mcp`.
`refold.server` listens over HTTP and checks the token.
"""

import os
from argparse import ArgumentParser, Namespace
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from refold.app.app import App
from refold.cli.launch import command_names, options_at
from refold.cli.serve import add_listen_flags, listen_options
from refold.client.launch import Launch
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, paths
from refold.errors import BadInput, RefoldError
from refold.headless.streams import explain_stdin, print_error, write
from refold.values.modes import MODE_NAMES

if TYPE_CHECKING:
    from refold.server.access import Access
    from refold.server.listening import ListenOptions

DEFAULT_PORT = 3501
SECRET_FILE = "mcp-server.key"
_MISSING_EXTRA = (
    "serving other agents needs a package that is not installed here: pip install "
    "'refold[mcp]', or, in a checkout, make run"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--http",
        action="store_true",
        help="serve over HTTP, with a token, and not on stdio",
    )
    add_listen_flags(parser, DEFAULT_PORT)
    parser.add_argument("-m", "--model", default="", help="model of the tasks")
    parser.add_argument(
        "--permission-mode", choices=MODE_NAMES, help="what runs without asking"
    )
    for name in ("allow", "deny"):
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="RULE", help=f"{name} rule"
        )
    parser.add_argument(
        "--script", metavar="FILE", help="take the model's responses from a script"
    )


def run(args: Namespace) -> int:
    """Serve tasks to another agent, on stdin and stdout or over HTTP. Return the exit code."""
    if args.http:
        return _run_http(args)
    # the flags of --http are an error here, unless they have their defaults
    listen_parser = ArgumentParser()
    add_listen_flags(listen_parser, DEFAULT_PORT)
    defaults = vars(listen_parser.parse_args([]))
    if any(getattr(args, key) != value for key, value in defaults.items()):
        raise BadInput("the options for address, TLS and token need --http: add it")
    try:
        from refold.task_server.serving import serve_stdio
    except ImportError as error:
        raise RefoldError(f"{_MISSING_EXTRA} ({error})") from error
    explain_stdin("refold mcp serve", "another agent")
    # at a signal, `os._exit` ends the process, although a thread waits for stdin
    anyio.run(
        serve_stdio, current_directory(), partial(launch_at, args), partial(os._exit, 0)
    )
    return 0


def _run_http(args: Namespace) -> int:
    """Serve over HTTP. Print the address and a new token on stdout. Return the exit code."""
    setup = listen_options(args, websockets=False)
    from refold.server import access

    secret = paths(os.environ).state / SECRET_FILE
    if args.new_keys:
        access.revoke_all(secret)
    is_new_token = not secret.exists()
    credentials = access.load_access(secret)
    if args.show_token:
        write(f"{credentials.bearer}\n")
        return 0
    anyio.run(_serve_http, args, setup, credentials, is_new_token)
    return 0


async def _serve_http(
    args: Namespace, setup: "ListenOptions", access: "Access", is_new_token: bool
) -> None:
    """Serve tasks over HTTP until a signal. The token is printed if `is_new_token`."""
    from refold.server.guard import Guard
    from refold.server.listening import listen, names_of, serve_until_signal

    try:
        from refold.task_server.serving import MCP_PATH, serve_http
    except ImportError as error:
        raise RefoldError(f"{_MISSING_EXTRA} ({error})") from error

    def print_address(address: str) -> None:
        write(f"address: {address}{MCP_PATH}\n")
        if is_new_token:
            write(f"token:   {access.bearer}\n")
        else:
            print_error(
                "the token is unchanged: refold mcp serve --http --show-token prints it"
            )

    with closing(listen(setup)) as listener:
        async with serve_http(current_directory(), partial(launch_at, args)) as served:
            guarded = Guard(served.app, access, names_of(setup, listener), public=())
            await serve_until_signal(guarded, listener, setup, print_address, served.leave)


def launch_at(args: Namespace, directory: Path, attended: bool) -> Launch:
    """Return a start in `directory`. Unless `attended`, calls that would ask are denied."""
    places = paths(os.environ)
    flags: dict[str, object] = {
        "permissions.allow": tuple(args.allow),
        "permissions.deny": tuple(args.deny),
    }
    if args.permission_mode:
        flags["permission_mode"] = MODE_NAMES[args.permission_mode]
    loaded = load_folder_settings(directory, places, os.environ, flags)
    options = replace(
        options_at(loaded, directory, args.script),
        model=args.model,
        attended=attended,
        watched=False,
        own_words=False,
    )
    app = App(loaded.settings, places, os.environ, options)
    return Launch(app, flags, command_names, notes=False)
