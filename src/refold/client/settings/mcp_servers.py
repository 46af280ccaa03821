"""Lists, adds, tests, accepts and removes the MCP servers that apply in a folder.

Listing starts no server: it shows what was recorded. `app.mcp_servers` finds the servers,
and `mcp.server_file_edit` changes their files.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from refold.app.app import App
from refold.app.mcp_files import ConfiguredServers, load_servers, user_file
from refold.app.mcp_servers import McpServers, manifests_in
from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.config.folder_settings import (
    load_folder_settings,
    project_and_trust,
    reason_settings_ignored,
)
from refold.config.paths import Paths
from refold.config.secret_values import (
    address_without_secrets,
    command_without_secrets,
    masks_of,
)
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.logs.logbook import Logbook
from refold.mcp.connections import ServerStatus
from refold.mcp.manifests import Manifests
from refold.mcp.packages import read_record
from refold.mcp.server_file_edit import add, remove
from refold.mcp.server_home import server_home
from refold.mcp.servers import ServerConfig
from refold.session.redactor import Redactor
from refold.tools.contract import Context
from refold.values.log_level import Level, WriteLog, discard_line

_REFUSED_UPDATE = (
    "the packages of {name} were installed without their scripts, which wanted {host}: if it needs "
    "what they install, allow net({host}) in permissions.allow, and remove and add it again"
)
_CONNECT_SECONDS = 120.0
_INSTALLATION_SECONDS = 1  # files that are so little newer than the record belong to it
_MAX_TOOLS = 200  # whose descriptions are shown


class StartPlace(Struct, frozen=True):
    """The directory in which servers are started outside of a session, and their variables."""

    directory: Path
    places: Paths
    environ: Mapping[str, str]


class ServerTool(Struct, frozen=True):
    name: str
    description: str


class ServerRow(Struct, frozen=True):
    """An MCP server. `state`: new (never connected), known, connected, failed or remote.

    `differences` describe how its blocked tools differ from those that the user accepted.
    `own` says that the user's own file defines it, so that it can be removed from there.
    """

    name: str
    target: str  # its command or address, without secrets
    source: str
    own: bool
    state: str
    why: str = ""  # the error, if it failed
    tools: Sequence[ServerTool] = ()
    blocked: Sequence[str] = ()
    differences: Sequence[str] = ()


class ServerList(Struct, frozen=True):
    """The servers of a folder.

    `notices` name the servers that do not apply in it, and why.
    """

    servers: Sequence[ServerRow]
    notices: Sequence[str]


class NewServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A new server: at the address `url`, or started as the program `command`.

    `hosts` are the hosts that the program may reach; it may reach none if the list is empty.
    With `writes`, the program may change files of the workspace.
    """

    name: str
    url: str = ""
    command: Sequence[str] = ()
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    hosts: Sequence[str] = ()
    writes: bool = False

    def entry(self) -> dict[str, Any]:
        """Return the server's entry in an .mcp.json file.

        Raises `BadInput` unless it has either a program or an address.
        """
        if bool(self.url) == bool(self.command):
            raise BadInput("an MCP server has an address or a command: give one of them")
        if self.url:
            if not self.url.startswith(("http://", "https://")):
                raise BadInput(f"{self.url!r} is not an http or https address")
            entry: dict[str, Any] = {"type": "http", "url": self.url}
            options: Mapping[str, Any] = {"headers": dict(self.headers)}
        else:
            entry = {"command": self.command[0], "args": list(self.command[1:])}
            options = {
                "env": dict(self.env),
                "hosts": list(self.hosts),
                "writes": self.writes,
            }
        return entry | {key: value for key, value in options.items() if value}


def list_servers(app: App, live: Sequence[ServerStatus] = ()) -> ServerList:
    """Return the servers of a folder: those that run here, then the remote ones.

    `live` has the state of the servers that open conversations in the folder have started.
    """
    known = load_servers(app.directory, app.paths, app.environ)
    manifests = Manifests(manifests_in(app.paths))
    statuses = {(item.config.name, item.config.source): item for item in live}
    rows = list[ServerRow]()
    for server in known.servers:
        status = statuses.get((server.name, server.source))
        if status is None:  # it was not started: show what it offered the last time
            status = ServerStatus(server, state="", manifest=manifests.read(server))
        rows.append(_row(app, status))
    for server in known.remote:
        target = shown_target(server, app.models.masks)
        is_own = _is_own(app, server)
        rows.append(
            ServerRow(server.name, target, server.source, own=is_own, state="remote")
        )
    notices = list(known.notices)
    project, trust = project_and_trust(Path(app.directory), app.paths)
    if ignored := reason_settings_ignored(project, trust):
        notices.append(ignored)
    return ServerList(rows, notices)


def add_server(app: App, new: NewServer) -> None:
    """Add a server to the user's own file.

    Raises `BadInput` if the server is invalid, or if its name is taken.
    """
    add(user_file(app.paths), new.name, new.entry())


def try_server(app: App, name: str, accept: Sequence[str] | None = None) -> ServerRow:
    """Connect to a server once, and return its state and what it offers.

    `accept` are the differences of its tools that the user has seen and accepted; with None, no
    tool is accepted. Raises `BadInput` if the differences are not the same any more, or the
    name is unknown.
    """
    server = find_here(app, name)
    reports = list[str]()
    place = StartPlace(Path(app.directory), app.paths, app.environ)
    with connect_servers((server,), place, report=reports.append) as servers:
        (status,) = servers.statuses()
        if accept is not None:
            if tuple(accept) != tuple(status.manifest.differences()):
                raise BadInput(
                    f"the tools of {name} have changed again: look at them first"
                )
            servers.connections.accept(name)
            (status,) = servers.statuses()
        return _row(app, status)


def remove_server(file: Path, name: str, paths: Paths, *, data: bool) -> str:
    """Remove a server and its packages from a file; with `data`, also the data that it stored.

    Return the path of data that remains, or "". Raises `BadInput` if the file has no such
    server.
    """
    if not remove(file, name):
        raise BadInput(
            f"{file} has no MCP server {name!r} (refold mcp list shows where each is defined)"
        )
    home = server_home(paths.data, name, str(file))
    package = read_record(home)
    if package is not None and package.kind == "node":
        # It may have stored its data beside its code, after it was installed.
        installed = package.installed + _INSTALLATION_SECONDS
        has_data_left = home.remove(data=data, beside_code=package.own, since=installed)
    else:
        has_data_left = home.remove(data=data)
    return str(home.directory) if has_data_left else ""


def remove_own(app: App, name: str, *, data: bool) -> str:
    """Remove a server from the user's own file, as `remove_server` does."""
    return remove_server(user_file(app.paths), name, app.paths, data=data)


def find_here(app: App, name: str) -> ServerConfig:
    """Return the server of that name in the folder of the app.

    Raises `BadInput` with the reason if it does not apply there.
    """
    return find_server(name, load_servers(app.directory, app.paths, app.environ))


def find_server(name: str, config: ConfiguredServers) -> ServerConfig:
    """Return the server `name` of `config`.

    Raises `BadInput` with the reason if it does not apply.
    """
    for server in config.servers:
        if server.name == name:
            return server
    if name in {server.name for server in config.remote}:
        raise BadInput(
            f"the MCP server {name!r} is in remote mode: the provider connects to it, and not "
            'refold; take "remote" out of its entry to use it from here'
        )
    # A notice quotes the name of the server that does not apply, and gives the reason.
    for notice in config.notices:
        if repr(name) in notice:
            raise BadInput(notice)
    names = ", ".join(server.name for server in config.servers)
    advice = f"choose from {names}" if names else "refold mcp add adds one"
    raise BadInput(
        f"there is no MCP server {name!r} here: {advice} (those of a folder count once it is "
        "trusted: refold trust add)"
    )


@contextmanager
def connect_servers(
    servers: Sequence[ServerConfig],
    place: StartPlace,
    *,
    report: Callable[[str], None],
    log: WriteLog = discard_line,
    seconds: float = _CONNECT_SECONDS,
    context: Context | None = None,
) -> Generator[McpServers]:
    """Connect servers outside of a session, and yield them once each is connected or has
    failed.

    `report` is called with sentences about installations, and `log` with lines for `refold
    logs`. `context` answers the servers' questions to the user. Do not call this in an
    event loop.
    """
    places = place.places
    environ = place.environ
    settings = _read_settings(place)
    masks = masks_of(environ, places)
    logbook = Logbook(places.state, settings.log_level, masks.mask)

    def write_log(level: Level, message: str, session: str = "") -> None:
        logbook(level, message, session)
        log(level, message, session)

    with open_workspace(place, settings) as workspace:
        configured = ConfiguredServers(tuple(servers))
        mcp = McpServers(configured, workspace, places, environ, write_log, masks.learn)
        try:
            to_install = [item for item in servers if mcp.programs.launch_to_install(item)]
            for sentence in mcp.programs.pending_installs(to_install):
                report(sentence)
            anyio.run(mcp.connections.wait_until_settled, seconds, context)
            for server in to_install:
                record = read_record(mcp.programs.home(server))
                if record is None:  # its packages were not installed
                    continue
                if record.reached:
                    report(f"{server.name}: {record.sentence}")
                if record.refused:
                    report(_REFUSED_UPDATE.format(name=server.name, host=record.refused))
            yield mcp
        finally:
            mcp.close()


@contextmanager
def open_workspace(
    place: StartPlace, settings: Settings | None = None
) -> Generator[Workspace]:
    """Yield the workspace of a directory, outside of a session.

    `settings` are those of the directory; if None, they are read from its files.
    """
    directories = WorkspaceDirectories(place.directory)
    settings = settings or _read_settings(place)
    workspace = Workspace(settings, place.places, place.environ, directories)
    try:
        yield workspace
    finally:
        workspace.close()


def _read_settings(place: StartPlace) -> Settings:
    return load_folder_settings(place.directory, place.places, place.environ, {}).settings


def _row(app: App, status: ServerStatus) -> ServerRow:
    """Return a server with its state and its tools, as a list shows it."""
    server, manifest = status.config, status.manifest
    why = status.why or manifest.failed
    if status.state in ("connected", "failed"):
        state = status.state
    elif why:
        state = "failed"
    else:
        state = "known" if manifest.known else "new"
    usable = manifest.usable[:_MAX_TOOLS]
    blocked = [tool.name for tool in manifest.blocked_tools]
    return ServerRow(
        name=server.name,
        target=shown_target(server, app.models.masks),
        source=server.source,
        own=_is_own(app, server),
        state=state,
        why=why if state == "failed" else "",
        tools=[ServerTool(tool.name, tool.description) for tool in usable],
        blocked=blocked,
        differences=manifest.differences() if blocked else (),
    )


def shown_target(server: ServerConfig, masks: Redactor | None = None) -> str:
    """Return the command or address of a server as it may be shown: without secrets."""
    masks = masks or Redactor(())
    if server.transport == "stdio":
        return command_without_secrets(server.command, masks)
    return address_without_secrets(server.url)


def _is_own(app: App, server: ServerConfig) -> bool:
    return server.source == str(user_file(app.paths))
