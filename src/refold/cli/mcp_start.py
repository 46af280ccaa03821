"""Starts MCP servers outside of a session, to test, check or update them.

`refold mcp add` and `test` start one server, and `refold doctor` starts all. `refold mcp
update` installs new versions of the packages of servers.
"""

import os
from argparse import Namespace
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio

from refold.app.mcp_files import load_servers
from refold.app.mcp_servers import McpServers
from refold.app.server_programs import ServerPrograms
from refold.cli.doctor_checks import CheckContext
from refold.cli.mcp_questions import terminal_context
from refold.cli.output import confirm, is_interactive
from refold.client.settings.mcp_servers import StartPlace, open_workspace
from refold.client.settings.mcp_servers import connect_servers as connect
from refold.config.paths import Paths
from refold.errors import BadInput
from refold.headless.streams import print_error, write
from refold.mcp.packages import Installation, read_record
from refold.mcp.servers import ServerConfig
from refold.values.log_level import WriteLog, discard_line
from refold.views.check_findings import Finding
from refold.views.escape import escape_to_one_line

_CHECK_SECONDS = 20.0  # for all servers, which start at the same time


@contextmanager
def connect_servers(
    servers: Sequence[ServerConfig],
    directory: Path,
    paths: Paths,
    log: WriteLog = discard_line,
    seconds: float = 120.0,
    *,
    asks: bool = False,
) -> Generator[McpServers]:
    """Connect the servers, and yield them once each is connected or has failed.

    The progress, such as the installation of a package, is printed on stderr. `log` is called
    with each line for the log. `seconds` is the time limit. With `asks`, the servers can ask
    the user questions at this terminal.
    """
    with connect(
        servers,
        StartPlace(directory, paths, os.environ),
        report=lambda text: print_error(escape_to_one_line(text)),
        log=log,
        seconds=seconds,
        context=terminal_context(directory, paths) if asks else None,
    ) as mcp:
        yield mcp


def update(
    args: Namespace, servers: Iterable[ServerConfig], directory: Path, paths: Paths
) -> int:
    """Install the newest versions of the servers, and ask whether to use them.

    Return exit code 1 if a version cannot be installed or is declined.
    """
    with open_workspace(StartPlace(directory, paths, os.environ)) as workspace:
        programs = ServerPrograms(workspace, paths, os.environ)
        updates = [_try_update(programs, server, accept=args.yes) for server in servers]
    return 0 if all(updates) else 1


def check_servers(context: CheckContext) -> Iterator[Finding]:
    """Start all servers at the same time, and yield a finding for each.

    Missing packages are not installed.
    """
    configured = load_servers(str(context.folder), context.places, context.environ)
    for notice in configured.notices:
        yield Finding("mcp", "warning", notice)
    with open_workspace(
        StartPlace(context.folder, context.places, context.environ)
    ) as workspace:
        programs = ServerPrograms(workspace, context.places, context.environ)
        not_installed = [
            server.name
            for server in configured.servers
            if programs.launch_to_install(server) is not None
        ]
    for name in not_installed:
        yield Finding(
            "mcp", "warning", f"{name}: its packages are not installed yet",
            f"refold mcp test {name} installs them",
        )  # fmt: skip
    servers = [server for server in configured.servers if server.name not in not_installed]
    if context.offline:
        remote_names = [server.name for server in servers if server.url]
        if remote_names:
            names = ", ".join(remote_names)
            yield Finding("mcp", "ok", f"not contacted (--offline): {names}")
        servers = [server for server in servers if not server.url]
    if servers:
        with connect_servers(
            servers, context.folder, context.places, seconds=_CHECK_SECONDS
        ) as mcp:
            for status in mcp.statuses():
                name = status.config.name
                if status.state == "connected":
                    yield Finding("mcp", "ok", f"{name}: {status.manifest.counts}")
                else:
                    why = status.why or f"it did not answer within {_CHECK_SECONDS:g} s"
                    yield Finding(
                        "mcp", "wrong", f"{name}: {why}", f"refold mcp test {name}"
                    )


def _try_update(programs: ServerPrograms, server: ServerConfig, *, accept: bool) -> bool:
    """Update a server. Return False if the user declines, or after printing an error."""
    try:
        return _update(programs, server, accept=accept)
    except BadInput as error:
        print_error(f"{server.name}: {escape_to_one_line(str(error))}")
        return False


def _update(programs: ServerPrograms, server: ServerConfig, *, accept: bool) -> bool:
    """Update a server to the newest version. Return False if the user declines it.

    Raises `BadInput` if the newest version cannot be installed.
    """
    launch = programs.launch(server)
    if launch is None:
        write(f"{server.name} is not a package that refold installs.\n")
        return True
    installer = programs.installer(server)
    old = read_record(programs.home(server))
    new = anyio.run(installer.install, launch)
    if old is not None and (old.version, old.integrity) == (new.version, new.integrity):
        installer.delete_installation(new)
        write(f"{server.name}: {_installation_text(new)} is the newest.\n")
        return True
    versions = escape_to_one_line(new.version)
    if old is not None:
        versions = f"{escape_to_one_line(old.version)} → {versions}"
    write(f"{server.name}: {escape_to_one_line(new.name)} {versions}\n")
    if new.reached:
        write(f"{escape_to_one_line(new.sentence).capitalize()}.\n")
    if not accept and not (is_interactive() and confirm("Use the new version?")):
        installer.delete_installation(new)
        write("Nothing has changed.\n")
        return False
    anyio.run(installer.use_installation, new)
    write(
        f"It is used from the next start; refold mcp test {server.name} lists its tools.\n"
    )
    return True


def _installation_text(installation: Installation) -> str:
    return escape_to_one_line(f"{installation.name} {installation.version}")
