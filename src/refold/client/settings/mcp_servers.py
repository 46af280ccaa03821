"""Settings of MCP servers: those that count in a folder, added, tried, accepted and removed.

A list starts nothing: it shows what is known. `app.mcp_servers` finds the servers and
`mcp.server_file_edit` changes their files.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from refold.app.app import App
from refold.app.mcp_servers import (
    ConfiguredServers,
    McpServers,
    load_servers,
    manifests_in,
    user_file,
)
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
_MAX_TOOLS = 200  # whose descriptions are shown


class StartPlace(Struct, frozen=True):
    """Where servers are started outside of a session, and with which environment."""

    directory: Path
    places: Paths
    environ: Mapping[str, str]


class ServerTool(Struct, frozen=True):
    name: str
    description: str


class ServerRow(Struct, frozen=True):
    """An MCP server. `state`: new (never connected), known, connected, failed or remote.

    `differences` say how its blocked tools differ from those that the user accepted.
    `own` says that it stands in the user's own file, from which it can be removed.
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
    """The servers of a folder. `notices` say which servers do not count here, and why."""

    servers: Sequence[ServerRow]
    notices: Sequence[str]


class NewServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A server at an address `url`, or one that is the program `command`.

    `hosts` are those that the program may reach, none: all; with `writes`, it may change
    files of the workspace.
    """

    name: str
    url: str = ""
    command: Sequence[str] = ()
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    hosts: Sequence[str] = ()
    writes: bool = False

    def entry(self) -> dict[str, Any]:
        """Its entry in the file. Raises `BadInput` if it is neither program nor address."""
        if bool(self.url) == bool(self.command):
            raise BadInput("an MCP server has an address or a command: give one of them")
        if self.url:
            if not self.url.startswith(("http://", "https://")):
                raise BadInput(f"{self.url!r} is not an http or https address")
            entry: dict[str, Any] = {"type": "http", "url": self.url}
            more: Mapping[str, Any] = {"headers": dict(self.headers)}
        else:
            entry = {"command": self.command[0], "args": list(self.command[1:])}
            more = {
                "env": dict(self.env),
                "hosts": list(self.hosts),
                "writes": self.writes,
            }
        return entry | {key: value for key, value in more.items() if value}


def list_servers(app: App, live: Sequence[ServerStatus] = ()) -> ServerList:
    """The servers of a folder. `live` are those that open conversations have there."""
    known = load_servers(app.directory, app.paths, app.environ)
    manifests = Manifests(manifests_in(app.paths))
    statuses = {(item.config.name, item.config.source): item for item in live}
    rows = [
        _row(
            app,
            statuses.get((server.name, server.source))
            or ServerStatus(server, "", manifests.read(server)),
        )
        for server in known.servers
    ]
    remote = [
        ServerRow(
            server.name,
            shown_target(server, app.models.masks),
            server.source,
            _is_own(app, server),
            "remote",
        )
        for server in known.remote
    ]
    ignored = reason_settings_ignored(*project_and_trust(Path(app.directory), app.paths))
    return ServerList([*rows, *remote], [*known.notices, *filter(None, (ignored,))])


def add_server(app: App, new: NewServer) -> None:
    """Add a server to the user's own file. Raises `BadInput`."""
    add(user_file(app.paths), new.name, new.entry())


def try_server(app: App, name: str, accept: Sequence[str] | None = None) -> ServerRow:
    """Connect to a server once, and say whether it works and what it offers.

    `accept` are differences that the user has seen: the tools are accepted if they are still
    those. Raises `BadInput` for an unknown name, or if the tools have changed again.
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
    """Remove a server from a file, and its packages; with `data`, what it stored, too.

    Returns where what it stored still is, or "". Raises `BadInput` if it is not in the file.
    """
    if not remove(file, name):
        raise BadInput(
            f"{file} has no MCP server {name!r} (refold mcp list shows where each is defined)"
        )
    home = server_home(paths.data, name, str(file))
    package = read_record(home)
    node = package is not None and package.kind == "node"
    beside = (package.own, package.installed + 1) if package and node else ("", 0.0)
    left = home.remove(data=data, beside_code=beside[0], since=beside[1])
    return str(home.directory) if left else ""


def remove_own(app: App, name: str, *, data: bool) -> str:
    """Remove a server from the user's own file, as `remove_server` does."""
    return remove_server(user_file(app.paths), name, app.paths, data=data)


def find_here(app: App, name: str) -> ServerConfig:
    """The server of that name in the folder of a start. Raises `BadInput`."""
    return find_server(name, load_servers(app.directory, app.paths, app.environ))


def find_server(name: str, config: ConfiguredServers) -> ServerConfig:
    """The server of that name. Raises `BadInput` that says why there is none."""
    for server in config.servers:
        if server.name == name:
            return server
    if name in {server.name for server in config.remote}:
        raise BadInput(
            f"the MCP server {name!r} is in remote mode: the provider connects to it, and not "
            'refold; take "remote" out of its entry to use it from here'
        )
    for notice in config.notices:
        if repr(name) in notice:
            raise BadInput(notice)
    names = ", ".join(server.name for server in config.servers)
    known = f"choose from {names}" if names else "refold mcp add adds one"
    raise BadInput(
        f"there is no MCP server {name!r} here: {known} (those of a folder count once it is "
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
    """Connect the servers outside of a session; each is connected or failed.

    `report` is called with sentences about what is installed. `log` gets what `refold logs`
    shows afterwards. `context` puts what the servers ask to the user. Not to be called in an
    event loop.
    """
    places, environ = place.places, place.environ
    settings = _read_settings(place)
    masks = masks_of(environ, places)
    logbook = Logbook(places.state, settings.log_level, masks.mask)

    def write_log(level: Level, message: str, session: str = "") -> None:
        logbook(level, message, session)
        log(level, message, session)

    with open_workspace(place, settings) as workspace:
        here = ConfiguredServers(tuple(servers))
        mcp = McpServers(here, workspace, places, environ, write_log, masks.learn)
        try:
            waiting = [item for item in servers if mcp.programs.launch_to_install(item)]
            for sentence in mcp.programs.pending_installs(waiting):
                report(sentence)
            anyio.run(mcp.connections.wait_until_settled, seconds, context)
            for item in waiting:
                record = read_record(mcp.programs.home(item))
                if record and record.reached:
                    report(f"{item.name}: {record.sentence}")
                if record and record.refused:
                    report(_REFUSED_UPDATE.format(name=item.name, host=record.refused))
            yield mcp
        finally:
            mcp.close()


@contextmanager
def open_workspace(
    place: StartPlace, settings: Settings | None = None
) -> Generator[Workspace]:
    """The workspace of a directory, outside of a session. `settings`: if they are read already."""
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
    server, manifest = status.config, status.manifest
    why = status.why or manifest.failed
    state = status.state if status.state in ("connected", "failed") else ""
    if not state:
        state = "failed" if why else "known" if manifest.known else "new"
    tools = [ServerTool(t.name, t.description) for t in manifest.usable[:_MAX_TOOLS]]
    blocked = [tool.name for tool in manifest.blocked_tools]
    differences = manifest.differences() if blocked else ()
    own = _is_own(app, server)
    return ServerRow(
        server.name, shown_target(server, app.models.masks), server.source, own, state, why if state == "failed" else "",
        tools, blocked, differences,
    )  # fmt: skip


def shown_target(server: ServerConfig, masks: Redactor | None = None) -> str:
    """The command or address of a server as other persons may see it, without secrets."""
    masks = masks or Redactor(())
    if server.transport == "stdio":
        return command_without_secrets(server.command, masks)
    return address_without_secrets(server.url)


def _is_own(app: App, server: ServerConfig) -> bool:
    return server.source == str(user_file(app.paths))
