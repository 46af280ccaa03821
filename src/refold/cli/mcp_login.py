"""`refold mcp login NAME` and `logout NAME`: gets or removes the tokens of an MCP server.

The server is reached over HTTP. Only this module opens a browser for a login. `mcp.oauth_login`
performs the login, `config.mcp_tokens` stores its tokens, and a session uses and renews them
without asking.
"""

import os
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import anyio

from refold.config.mcp_tokens import GrantPlace, grant_store
from refold.config.paths import Paths
from refold.console.open_page import NO_BROWSER, open_page
from refold.errors import BadInput
from refold.headless.streams import print_error, write
from refold.mcp.grants import Grant
from refold.mcp.servers import ServerConfig, resolve
from refold.views.escape import escape_to_one_line


def add_arguments(parsers: Any) -> None:
    """Add the subcommands to `parsers`, the subcommands of `refold mcp`."""
    login = parsers.add_parser("login", help="log in at a server, in the browser")
    login.add_argument("name", metavar="NAME")
    login.add_argument(
        "--no-browser", action="store_true", help="print the address, and open nothing"
    )
    login.add_argument("--keyring", action="store_true",
        help="store the tokens in the operating system's keyring instead of a file")  # fmt: skip
    logout = parsers.add_parser("logout", help="delete the tokens of a server")
    logout.add_argument("name", metavar="NAME")


def run(args: Namespace, server: ServerConfig, paths: Paths) -> int:
    """Log in at the server, or log out. Return the exit code."""
    in_keyring: bool | None = getattr(args, "keyring", None)  # None: a logout
    store = grant_store(paths, _mask_nothing, in_keyring=in_keyring)
    server = resolve(server, os.environ)
    if args.what == "logout":
        return _log_out(server, store)
    from refold.mcp.oauth_login import log_in

    browser = _Browser(paths.state / "mcp" / "login.html", opens=not args.no_browser)
    try:
        grant = anyio.run(
            log_in, server, os.environ, browser.show, _stored_grant(server, store)
        )
    finally:
        browser.close()
    store.write(server.name, server.url, grant)
    place = escape_to_one_line(store.place)
    write(f"You are logged in at {server.name}; its tokens are kept {place}.\n")
    write(f"refold mcp test {server.name} lists its tools.\n")
    return 0


def _log_out(server: ServerConfig, store: GrantPlace) -> int:
    """Delete the tokens of a server. Return 1 if there were none, otherwise 0."""
    if not store.remove(server.name, server.url):
        print_error(f"there was no login at the MCP server {server.name}")
        return 1
    write(f"The tokens of {server.name} are deleted here.\n")
    return 0


def _stored_grant(server: ServerConfig, store: GrantPlace) -> Grant | None:
    """Return the stored tokens of an earlier login.

    Return None if no tokens are stored, or if they cannot be read.
    """
    try:
        return store.read(server.name, server.url)
    except BadInput as error:
        print_error(escape_to_one_line(str(error)))
        return None


class _Browser:
    """Shows the user the address of the login page, and opens it in the browser."""

    def __init__(self, redirect_file: Path, *, opens: bool) -> None:
        self._redirect_file, self._opens = redirect_file, opens
        # kept, because Python warns about a process that is forgotten while it runs
        self._started: subprocess.Popen[bytes] | None = None

    async def show(self, url: str) -> None:
        """Print the address of the login page, and open it if a browser should be opened."""
        write(f"Log in on this page:\n\n  {escape_to_one_line(url)}\n\n")
        if self._opens:
            self._started = open_page(url, self._redirect_file, os.environ)
            if self._started is None:
                print_error(NO_BROWSER)
        write("Waiting for the browser; Ctrl+C ends it.\n")

    def close(self) -> None:
        self._redirect_file.unlink(missing_ok=True)


def _mask_nothing(*_: str) -> None:
    """Do nothing: this command records no output in which secrets must be masked."""
