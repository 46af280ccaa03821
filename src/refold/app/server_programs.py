"""Prepares an MCP server that is a program: its variables, directories, packages and sandbox.

`mcp_servers` decides which servers are used, and `refold.mcp` runs them. This module adds what
depends on the workspace and the directories of refold.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from refold.app.workspace import Workspace
from refold.config.paths import Paths, home
from refold.errors import BadInput, reason_of
from refold.mcp.packages import PackageLaunch, installation, launch_of
from refold.mcp.server_home import ServerHome, from_home, server_home
from refold.mcp.servers import ServerConfig, resolve
from refold.permissions.network_hosts import network_rules
from refold.place.private_files import make_directories
from refold.values.hosts import EVERY_HOST
from refold.values.path_names import below

if TYPE_CHECKING:
    from refold.mcp.package_install import Installer
    from refold.mcp.server_paths import PreparedServer
    from refold.place.port import Commands


class ServerPrograms:
    """Prepares the MCP servers of one workspace that are programs."""

    def __init__(
        self, workspace: Workspace, paths: Paths, environ: Mapping[str, str]
    ) -> None:
        self._workspace, self._paths, self._environ = workspace, paths, environ
        self._user_home = home(environ)

    def commands(self, server: "PreparedServer") -> "Commands":
        """Return the commands in whose sandbox this server runs."""
        config = server.config
        return self._workspace.server_commands(
            writes=config.writes, own_paths=server.own, writable=config.writable
        )

    def is_confined(self, servers: Mapping[str, ServerConfig], name: str) -> bool:
        """Whether the sandbox of a server keeps it from changing files of the workspace.

        No directory to which the server may write can be in a root of the workspace or contain
        a root.
        """
        server = servers[name]
        sandbox = self._workspace.sandbox
        if server.transport != "stdio" or server.writes or not sandbox.confines:
            return False
        server_paths = (*server.writable, str(self.home(server).directory))
        paths = (*sandbox.config.writable, *from_home(server_paths, self._user_home))
        for writable in map(os.path.realpath, paths):
            for root in self._workspace.roots:
                if below(writable, root) or below(root, writable):
                    return False
        return True

    def home(self, server: ServerConfig) -> ServerHome:
        return server_home(self._paths.data, server.name, server.source)

    def launch_to_install(self, server: ServerConfig) -> PackageLaunch | None:
        """Return the packages to install before this server can start.

        Return None if no package is missing.
        """
        if server.transport != "stdio":
            return None
        launch = self.launch(server)
        if launch is None or installation(self.home(server), launch):
            return None
        return launch

    def launch(self, server: ServerConfig) -> PackageLaunch | None:
        """Return the packages that the command of a server names, or None."""
        return launch_of(self._resolve(server).command)

    def pending_installs(self, servers: Sequence[ServerConfig]) -> Iterator[str]:
        """Yield a sentence for each server whose packages must be installed first."""
        for server in servers:
            if launch := self.launch_to_install(server):
                yield (
                    f"the MCP server {server.name} is used for the first time: {launch.names} is "
                    "installed, which needs the network and may take a minute"
                )

    async def prepare(
        self, server: ServerConfig, begin: Callable[[], None] = lambda: None
    ) -> "PreparedServer":
        """Return the server with everything that it needs to start.

        `begin` is called before packages are installed. Raises `BadInput` if the variables,
        directories or packages cannot be prepared.
        """
        from refold.mcp.server_paths import PreparedServer, visible_paths

        config = self._resolve(server)
        if config.transport != "stdio":
            return PreparedServer(config)
        own_home = self.home(server)
        try:
            own_home.create()
        except OSError as error:
            raise BadInput(
                f"the directory {own_home.directory} of the MCP server {server.name} cannot be "
                f"created: {reason_of(error)}"
            ) from error
        own_paths = [str(own_home.home)]
        command, variables, installed = config.command, dict[str, str](), ""
        path = self._environ.get("PATH", "")
        if launch := launch_of(command):
            program = installation(own_home, launch)
            if program is None:
                program = await self.installer(server).find_or_install(launch, begin)
                installed = program.sentence
            command = (*program.command, *launch.arguments)
            own_paths.append(program.directory)
            variables["PATH"] = f"{program.programs}{os.pathsep}{path}"
        variables |= own_home.variables(config, self._user_home, self._environ)
        config = replace(
            config,
            command=from_home(command, self._user_home),
            environment=tuple(variables.items()),
            writable=tuple(self._writable(config)),
        )
        roots = self._workspace.roots
        return PreparedServer(
            replace(config, visible=visible_paths(config, roots, path)),
            own=tuple(own_paths),
            roots=roots,
            user_home=self._user_home,
            narrow=self._workspace.reads_only,
            installed=installed,
        )

    def installer(self, server: ServerConfig) -> "Installer":
        """Return the installer for the package of a server.

        The installer may reach only the hosts that the server and the rules allow.
        """
        from refold.mcp.package_install import Installer

        def commands(own: Sequence[str]) -> "Commands":
            return self._workspace.server_commands(writes=False, own_paths=own)

        allowed_hosts = (*server.hosts, *network_rules(self._workspace.rules).allowed)
        sandbox = self._workspace.sandbox
        cannot_filter = sandbox.kind == "bubblewrap" and not sandbox.filters_hosts
        may_reach_all = cannot_filter or EVERY_HOST in allowed_hosts
        return Installer(
            self.home(server),
            commands,
            self._environ,
            self._user_home,
            None if may_reach_all else allowed_hosts,
        )

    def _resolve(self, server: ServerConfig) -> ServerConfig:
        config = resolve(server, self._environ)
        cwd = os.path.join(self._workspace.directory, os.path.expanduser(config.cwd))
        return replace(config, cwd=os.path.normpath(cwd))

    def _writable(self, config: ServerConfig) -> Iterator[str]:
        """Create the directories that a server may write to, and yield their real paths.

        Raises `BadInput` if a directory contains keys or settings, or cannot be created.
        """
        from refold.place.sandbox_rules import key_paths

        own_paths = (self._paths.config, self._paths.data, self._paths.state)
        protected = (*map(os.path.realpath, own_paths), *key_paths(self._user_home))
        for path in from_home(config.writable, self._user_home):
            real = os.path.realpath(path)
            is_too_wide = real in ("/", self._user_home)
            is_protected = any(
                below(real, folder) or below(folder, real) for folder in protected
            )
            if is_too_wide or is_protected:
                raise BadInput(
                    f"the MCP server {config.name} cannot change files in {path}: there are keys "
                    "or settings in it; choose another directory"
                )
            try:
                make_directories(Path(real))
            except OSError as error:
                raise BadInput(
                    f"the directory {path}, which the MCP server {config.name} may change files "
                    f"in, cannot be created: {reason_of(error)}"
                ) from error
            yield real
