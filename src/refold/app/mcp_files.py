"""Reads the files that configure MCP servers, and decides which of the servers are used.

The user's own servers are configured in refold's configuration directory. The servers of a
folder are used only if the folder is trusted, and only until their file changes. `mcp.servers`
parses a file; `mcp_servers` starts the servers and offers their tools.
"""

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from refold.app.search_places import USER_MCP_FILE
from refold.config.folder_settings import project_and_trust
from refold.config.paths import MCP_FILES, Paths
from refold.config.project import MAX_SETTINGS_BYTES, read_project
from refold.config.secret_values import masks_of, may_be_secret
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.mcp.servers import ServerConfig, read, resolve, variable_mark
from refold.safe_open import read_regular

_NOT_CHOSEN = (
    "the MCP server {name!r} in {source} is not used: remote mode lets the provider call its tools "
    "without asking you, so only your own mcp_servers.json can choose it"
)
_NOT_INSTALLED = (
    "MCP servers are configured, but the extra is not installed: pip install 'refold[mcp]'"
)


class ConfiguredServers(Struct, frozen=True):
    """The servers that are used. `notices` are sentences about servers that are not used.

    The provider of the model connects to the servers in `remote`; refold connects to the
    others.
    """

    servers: tuple[ServerConfig, ...] = ()
    notices: tuple[str, ...] = ()
    remote: tuple[ServerConfig, ...] = ()


def user_file(paths: Paths) -> Path:
    return paths.config / USER_MCP_FILE


def load_servers(
    directory: str,
    paths: Paths,
    environ: Mapping[str, str],
    extra: Mapping[str, object] = MappingProxyType({}),
    *,
    trust: bool = False,
) -> ConfiguredServers:
    """Return the servers to use in this directory, and notices about the others.

    A server of the user replaces one of the project with the same name. `extra` are servers of
    the program that started this session; they are treated like the user's own, because the
    user configured them there. With `trust`, the folder counts as trusted for this start.
    """
    files = _load_files(directory, paths, trust=trust)
    if extra:
        extra_file = ("the editor", json.dumps(dict(extra)).encode())
        files = replace(files, content=(*files.content, extra_file))
    if not files.content and not files.notices:
        return ConfiguredServers()
    servers, notices = dict[str, ServerConfig](), list(files.notices)
    own_sources = {str(user_file(paths)), "the editor"}
    for source, content in files.content:
        parsed = read(content, source)
        notices += parsed.problems
        for server in parsed.servers:
            if (known := servers.get(server.name)) is not None:
                notices.append(
                    f"the MCP server {server.name!r} in {source} is not used: {known.source} has "
                    "one of this name"
                )
                continue
            if server.remote and source not in own_sources:
                notices.append(_NOT_CHOSEN.format(name=server.name, source=source))
                continue
            try:
                resolve(server, environ)
                if source not in own_sources:
                    _check_variables(server, paths, environ, trust=trust)
            except BadInput as error:
                notices.append(str(error))
                continue
            servers[server.name] = server
    remote = tuple(server for server in servers.values() if server.remote)
    connected = tuple(server for server in servers.values() if not server.remote)
    if connected and find_spec("mcp") is None:
        connected, notices = (), [*notices, _NOT_INSTALLED]
    return ConfiguredServers(connected, tuple(notices), remote)


def project_servers(directory: Path, paths: Paths) -> tuple[ServerConfig, ...]:
    """Return the servers in the files of this folder, whether they are used or not."""
    source = read_project(directory, paths.settings)
    return tuple(
        server
        for file in source.files
        if file.name in MCP_FILES
        for server in read(file.content, os.path.join(source.folder, file.name)).servers
    )


def variables_to_allow(
    server: ServerConfig, paths: Paths, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what the user must still allow before a server of the project can be used.

    These are variables that are set, and directories that the server may change.
    """
    set_variables = [name for name in server.variables if name in environ]
    names = [*set_variables, *server.writable]
    if not names:
        return ()
    allowed = TrustedFolders(paths.folders).variables(os.path.dirname(server.source))
    return tuple(name for name in names if variable_mark(server, name) not in allowed)


def _check_variables(
    server: ServerConfig, paths: Paths, environ: Mapping[str, str], *, trust: bool
) -> None:
    """Raise `BadInput` if the user has not allowed a variable or a directory of a project's
    server.

    With `trust`, the folder counts as trusted for this start. Then only directories and
    variables that may be secret need to be allowed.
    """
    names = variables_to_allow(server, paths, environ)
    if names and trust:
        masks = masks_of(environ, paths)
        names = tuple(
            n for n in names if n in server.writable or may_be_secret(n, environ[n], masks)
        )
    if not names:
        return
    # Some of the names are variables, and the others are directories.
    variables = " and ".join(f"${{{n}}}" for n in names if n not in server.writable)
    directories = " and ".join(n for n in names if n in server.writable)
    actions = list[str]()
    if variables:
        actions.append(f"get your {variables}")
    if directories:
        actions.append(f"change files in {directories}")
    raise BadInput(
        f"the MCP server {server.name!r} in {server.source} is off: it would "
        f"{' and '.join(actions)}; to allow it: refold mcp allow {server.name} {' '.join(names)}"
    )


class _Files(Struct, frozen=True):
    content: tuple[tuple[str, bytes], ...] = ()  # path and content of each file
    notices: tuple[str, ...] = ()


def _load_files(directory: str, paths: Paths, *, trust: bool) -> _Files:
    """Load the configuration files that apply, with their paths. The user's own file comes
    first.
    """
    own_file = user_file(paths)
    content, notices = list[tuple[str, bytes]](), list[str]()
    try:
        content.append((str(own_file), read_regular(own_file, MAX_SETTINGS_BYTES)[0]))
    except FileNotFoundError:
        pass
    except OSError as error:
        notices.append(f"{own_file} cannot be read: {error.strerror}")
    names = [n for n in MCP_FILES if os.path.lexists(os.path.join(directory, n))]
    if not names or os.path.realpath(directory) == os.path.realpath(paths.config):
        return _Files(tuple(content), tuple(notices))
    source, state = project_and_trust(Path(directory), paths, trust=trust)
    if state == "trusted":
        content += [
            (os.path.join(source.folder, file.name), file.content)
            for file in source.files
            if file.name in MCP_FILES
        ]
    return _Files(tuple(content), tuple(notices))
