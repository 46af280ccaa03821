"""`refold mcp add|list|remove|test|update|allow` and so on: manages MCP servers.

`list` starts no server, and shows stored information. `test` connects to one server, and shows
which tools have changed since the user accepted them. `app.mcp_servers` finds the servers.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refold.app.mcp_files import ConfiguredServers, load_servers, project_servers, user_file
from refold.app.mcp_servers import McpServers, manifests_in
from refold.cli import mcp_login, mcp_registry, mcp_serve, mcp_start
from refold.cli.output import confirm
from refold.client.settings.mcp_servers import find_server, remove_server
from refold.config.folder_settings import project_and_trust, reason_settings_ignored
from refold.config.paths import MCP_FILES, Paths, current_directory, paths
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.headless.streams import print_document, print_error, write
from refold.mcp.connections import ServerStatus
from refold.mcp.manifests import Manifest, Manifests
from refold.mcp.registry import is_registry_name, local_name
from refold.mcp.server_file_edit import add
from refold.mcp.servers import variable_mark
from refold.values.hosts import expand_all
from refold.values.log_level import Level
from refold.values.printable_names import shorten
from refold.views.escape import escape_to_one_line

_MAX_ABOUT_CHARS = 100
_MAX_REPORTS, _MAX_REPORT_CHARS = 50, 500


def add_arguments(mcp: ArgumentParser) -> None:
    subparsers = mcp.add_subparsers(dest="what", metavar="WHAT")
    mcp.set_defaults(what="list", json=False)
    new = subparsers.add_parser(
        "add", help="add a server, by its address, its command, or its name in a registry"
    )

    def server_name(text: str) -> str:
        # the name of a server in a registry needs no TARGET
        target.required = not is_registry_name(text)
        return text

    new.add_argument("name", metavar="NAME", type=server_name, help="name of the server")
    mcp_registry.add_arguments(subparsers, new)
    new.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
        help="a variable of its environment; repeatable")  # fmt: skip
    new.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'",
        help="a header of each request to it; repeatable")  # fmt: skip
    new.add_argument("--sse", action="store_true", help="use the older HTTP transport")
    new.add_argument(
        "--writes", action="store_true", help="let it change files of the workspace"
    )
    new.add_argument(
        "--writable",
        action="append",
        default=[],
        metavar="DIR",
        help="let it change files in this directory, too",
    )
    new.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="let it reach only this host, as in api.example.org or preset:github",
    )
    new.add_argument(
        "--no-start", action="store_true", help="do not start it to see whether it works"
    )
    new.add_argument(
        "--remote",
        action="store_true",
        help="let the provider of the model connect to it, and call its tools without asking",
    )
    new.add_argument(
        "--project", action="store_true", help="write it into .mcp.json of this directory"
    )
    target = new.add_argument(
        "target", nargs="+", metavar="TARGET", help="an address, or -- and a command"
    )
    listing = subparsers.add_parser("list", help="list the servers; starts none")
    listing.add_argument("--json", action="store_true", help="print JSON lines")
    remove = subparsers.add_parser("remove", help="remove a server")
    remove.add_argument("name", metavar="NAME", help="name of the server")
    remove.add_argument(
        "--project", action="store_true", help="from .mcp.json of this directory"
    )
    remove.add_argument(
        "--data", action="store_true", help="remove what the server has stored, too"
    )
    updating = subparsers.add_parser(
        "update", help="install the newest versions of servers that are packages"
    )
    updating.add_argument("name", nargs="?", default="", metavar="NAME",
        help="name of the server (default: all)")  # fmt: skip
    updating.add_argument(
        "-y", "--yes", action="store_true", help="install them without asking"
    )
    test = subparsers.add_parser(
        "test", help="connect, list the tools, and show which have changed"
    )
    test.add_argument("name", metavar="NAME", help="name of the server")
    test.add_argument("-y", "--yes", action="store_true", help="accept changed tools")
    allow = subparsers.add_parser(
        "allow",
        help="let a server of this directory have variables of yours, or change other directories",
    )
    allow.add_argument("name", metavar="NAME", help="name of the server")
    allow.add_argument("variables", nargs="+", metavar="VARIABLE|DIR",
        help="a variable of yours that it gets, or a directory that it may change")  # fmt: skip
    mcp_login.add_arguments(subparsers)
    serving = subparsers.add_parser(
        "serve", help="serve as an MCP server that works on tasks of other agents"
    )
    mcp_serve.add_arguments(serving)


def run(args: Namespace) -> int:
    places, directory = paths(os.environ), current_directory()
    match args.what:
        case "add":
            return _add(args, _settings_file(args, places, directory), places, directory)
        case "list":
            why = reason_settings_ignored(*project_and_trust(directory, places))
            return _list(_load_servers(places, directory), places, why, as_json=args.json)
        case "search":
            return mcp_registry.search(args)
        case "remove":
            file = _settings_file(args, places, directory)
            return _remove(args.name, file, places, data=args.data)
        case "serve":
            return mcp_serve.run(args)
        case "allow":
            return _allow(args.name, args.variables, places, directory)
        case "login" | "logout":
            server = find_server(args.name, _load_servers(places, directory))
            return mcp_login.run(args, server, places)
        case "update":
            config = _load_servers(places, directory)
            servers = [find_server(args.name, config)] if args.name else config.servers
            code = mcp_start.update(args, servers, directory, places)
        case _:
            code = _test(args.name, places, directory, accept=args.yes)
    return code


def _settings_file(args: Namespace, paths: Paths, directory: Path) -> Path:
    """Return the file of servers to change: with --project, .mcp.json of the directory.

    Without --project, return the user's own file.
    """
    return directory / MCP_FILES[0] if args.project else user_file(paths)


def _add(args: Namespace, file: Path, paths: Paths, directory: Path) -> int:
    """Add a server to `file`, and try it unless a flag rules that out. Return the exit code."""
    entry = _entry(args)  # sets `args.name`, if it names a server of a registry
    add(file, args.name, entry)
    write(f"The MCP server {args.name} is in {escape_to_one_line(str(file))}.\n")
    if args.remote:
        write(
            "The provider of the model calls its tools; refold does not ask you about them.\n"
        )
    elif args.project:
        write("It is used here once this folder is trusted: refold trust add\n")
    elif args.no_start:
        write(f"refold mcp test {args.name} connects to it, and lists its tools.\n")
    else:
        return _try_server(args.name, paths, directory)
    return 0


def _try_server(name: str, paths: Paths, directory: Path) -> int:
    """Start a new server once, and print whether it works. Return the exit code."""
    server = find_server(name, _load_servers(paths, directory))
    with mcp_start.connect_servers((server,), directory, paths, asks=True) as servers:
        (status,) = servers.statuses()
    if status.state != "connected":
        why = status.why or "it did not start in time"
        print_error(f"it does not work: {why}; refold mcp test {name} tries again")
        return 1
    write(f"It works: {_count_offers(status)}. refold mcp test {name} lists them.\n")
    has_every_host = server.network and not server.hosts
    if server.transport == "stdio" and has_every_host:
        write("It may reach every host; --host HOST lets it reach only that one.\n")
    return 0


def _entry(args: Namespace) -> dict[str, Any]:
    """Return the entry of the server that the flags describe, for the file of servers.

    Raises `BadInput` for invalid flags.
    """
    words = args.target
    if not words:  # NAME is the name of a server in a registry
        return _registry_server(args)
    first, *others = words
    if not others and "://" in first:
        return _entry_of_address(args, first)
    return _entry_of_command(args, first, others)


def _entry_of_address(args: Namespace, url: str) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"{url!r} is not an http or https address")
    options = {
        "--env": args.env, "--writes": args.writes, "--writable": args.writable,
        "--host": args.host,
    }  # fmt: skip
    _reject_options(options, "a program")
    table: dict[str, Any] = {"type": "sse" if args.sse else "http", "url": url}
    if args.remote:
        table["remote"] = True
        _reject_remote_in_project(args.project)
    if args.header:
        table["headers"] = _pairs(args.header, ":", "--header 'NAME: VALUE'")
    return table


def _entry_of_command(
    args: Namespace, program: str, arguments: list[str]
) -> dict[str, Any]:
    options = {"--header": args.header, "--sse": args.sse, "--remote": args.remote}
    _reject_options(options, "an address")
    table: dict[str, Any] = {"command": program, "args": arguments}
    if args.env:
        table["env"] = _pairs(args.env, "=", "--env NAME=VALUE")
    return table | _program_access(args)


def _program_access(args: Namespace) -> dict[str, Any]:
    """Return the keys of a server's entry that say what its program may change and reach.

    Raises `BadInput` for an invalid --host.
    """
    try:
        expand_all(args.host)
    except ValueError as error:
        raise BadInput(f"--host: {error}") from error
    keys: dict[str, Any] = {
        "writes": args.writes,
        "writable": [*map(_absolute_directory, args.writable)],
        "hosts": args.host,
    }
    return {key: value for key, value in keys.items() if value}


def _absolute_directory(path: str) -> str:
    """Return the absolute path. A path that begins with ~/ is returned unchanged.

    The ~ stands for the home directory of each user.
    """
    return path if path.startswith("~/") else os.path.abspath(path)


def _registry_server(args: Namespace) -> dict[str, Any]:
    """Return the entry for the named server of a registry. Set `args.name` to its local name.

    Raises `BadInput` if there is no usable entry.
    """
    _reject_options({"--sse": args.sse, "--remote": args.remote}, "an address")
    options = {
        **_pairs(args.env, "=", "--env NAME=VALUE"),
        **_pairs(args.header, ":", "--header 'NAME: VALUE'"),
    }
    table = mcp_registry.registry_entry(args, options)
    table |= _program_access(args)
    args.name = args.alias or local_name(args.name)
    return table


def _reject_remote_in_project(project: bool) -> None:
    if project:
        raise BadInput(
            "--remote is for your own file, because you are not asked about the calls of such a "
            "server: leave --project out"
        )


def _reject_options(options: Mapping[str, object], target: str) -> None:
    """Raise `BadInput` if one of `options` is set.

    `target` is the kind of server to which the options belong, for the error.
    """
    for option, value in options.items():
        if value:
            raise BadInput(f"{option} is for a server that is {target}: leave it out")


def _pairs(pairs: Sequence[str], sign: str, usage: str) -> dict[str, str]:
    """Split each of `pairs` at `sign` into a name and a value. Return the values by name.

    Raises `BadInput`, which shows `usage`, for a text without a name or without `sign`.
    """
    values = dict[str, str]()
    for pair in pairs:
        name, separator, value = pair.partition(sign)
        if not separator or not name.strip():
            raise BadInput(f"{pair!r} is not {usage}")
        # spaces around the value of a header do not belong to it
        values[name.strip()] = value.strip() if sign == ":" else value
    return values


def _list(
    config: ConfiguredServers, paths: Paths, reason_ignored: str, *, as_json: bool
) -> int:
    """Print all servers and return 0. `reason_ignored` is a further notice, or ""."""
    manifests = Manifests(manifests_in(paths))
    for server in config.servers:
        manifest = manifests.read(server)
        if as_json:
            row = {
                "name": server.name, "transport": server.transport, "target": server.summary,
                "source": server.source, "tools": [t.name for t in manifest.usable],
                "blocked": [t.name for t in manifest.blocked_tools],
            }  # fmt: skip
            print_document(row)
        else:
            write(f"{server.name}  {escape_to_one_line(server.summary)}\n")
            write(
                f"    {_manifest_counts(manifest)}, from {escape_to_one_line(server.source)}\n"
            )
    for server in config.remote:
        if as_json:
            row = {
                "name": server.name, "transport": server.transport, "target": server.summary,
                "source": server.source, "remote": True,
            }  # fmt: skip
            print_document(row)
        else:
            write(f"{server.name}  {escape_to_one_line(server.summary)}\n")
            write(
                f"    remote: the provider calls it, from {escape_to_one_line(server.source)}\n"
            )
    if not (config.servers or config.remote) and not as_json:
        write("There are no MCP servers here. refold mcp add NAME adds one.\n")
    for notice in filter(None, (*config.notices, reason_ignored)):
        print_error(escape_to_one_line(notice))
    return 0


def _manifest_counts(manifest: Manifest) -> str:
    return manifest.counts if manifest.known else "not connected yet"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _remove(name: str, file: Path, paths: Paths, *, data: bool) -> int:
    """Remove a server from `file`; with `data`, also what the server stored. Return 0."""
    kept_data = remove_server(file, name, paths, data=data)
    write(f"The MCP server {name} is removed from {escape_to_one_line(str(file))}.\n")
    if kept_data:
        place = escape_to_one_line(kept_data)
        write(f"What it stored is still in {place}; --data would have removed it.\n")
    return 0


def _test(name: str, paths: Paths, directory: Path, *, accept: bool) -> int:
    """Start a server and print its tools. Return 1 if tools stay blocked, otherwise 0."""
    server = find_server(name, _load_servers(paths, directory))
    with mcp_start.connect_servers(
        (server,), directory, paths, _ReportPrinter(), asks=True
    ) as servers:
        (status,) = servers.statuses()
        if status.state != "connected":
            raise BadInput(f"the MCP server {name} cannot be used: {status.why}")
        _show(status)
        if status.manifest.blocked_tools:
            return _accept(servers, status, accept=accept)
    return 0


def _allow(name: str, wanted: Sequence[str], paths: Paths, directory: Path) -> int:
    """Allow a project's server to get the `wanted` variables and directories of the user.

    The permission is valid until the entry of the server changes. Return the exit code.
    """
    servers = project_servers(directory, paths)
    server = next((one for one in servers if one.name == name), None)
    if server is None:
        names = ", ".join(one.name for one in servers) or "none"
        raise BadInput(
            f"no file of {directory} has an MCP server {name!r}: there is {names}; servers of "
            "your own mcp_servers.json need no permission"
        )
    # The shell has already expanded `~`, which the entry may contain.
    entry_items = {
        os.path.expanduser(item): item for item in (*server.variables, *server.writable)
    }
    unknown = [item for item in wanted if os.path.expanduser(item) not in entry_items]
    if unknown:
        raise BadInput(
            f"the MCP server {name!r} does not name {' and '.join(unknown)}: it names "
            f"{', '.join(entry_items.values()) or 'no variable'}"
        )
    folder = os.path.dirname(server.source)
    allowed = [entry_items[os.path.expanduser(item)] for item in wanted]
    entries = [variable_mark(server, item) for item in allowed]
    TrustedFolders(paths.folders).allow_variables(folder, entries)
    write(
        f"The MCP server {name} ({escape_to_one_line(server.summary)}) gets your "
        f"{', '.join(allowed)}, until its entry in {escape_to_one_line(server.source)} changes.\n"
    )
    return 0


def _show(status: ServerStatus) -> None:
    offer = status.manifest.offer
    title = f" ({escape_to_one_line(offer.title)})" if offer.title else ""
    write(f"{status.config.name}{title} is connected: {_count_offers(status)}.\n")
    for tool in status.manifest.usable:
        about = shorten(escape_to_one_line(tool.description), _MAX_ABOUT_CHARS)
        write(f"  {escape_to_one_line(tool.name)}  {about}\n")


def _count_offers(status: ServerStatus) -> str:
    offer = status.manifest.offer
    return ", ".join(
        (
            _count(len(offer.tools), "tool"),
            _count(len(offer.prompts), "prompt"),
            _count(len(offer.resources), "resource"),
        )
    )


def _accept(servers: McpServers, status: ServerStatus, *, accept: bool) -> int:
    """Show the blocked tools of a server, and ask whether to accept the tools.

    With `accept`, accept the tools without asking. Return the exit code.
    """
    if damage := status.manifest.damaged:
        write(f"{escape_to_one_line(damage)}.\nThese tools are blocked:\n\n")
    else:
        write("These tools have changed since you accepted them, and are blocked:\n\n")
    write(
        "".join(f"{escape_to_one_line(line)}\n" for line in status.manifest.differences())
    )
    write("\n")
    if not accept and not _confirm_if_seen("Accept them?"):
        write("They stay blocked.\n")
        return 1
    servers.connections.accept(status.config.name)
    write("They are accepted.\n")
    return 0


def _confirm_if_seen(question: str) -> bool:
    """Ask a question, and return the answer. Return False if there is no terminal."""
    from refold.cli.output import is_interactive

    return is_interactive() and confirm(question)


def _load_servers(paths: Paths, directory: Path) -> ConfiguredServers:
    return load_servers(str(directory), paths, os.environ)


class _ReportPrinter:
    """Prints the progress reports of a server, up to a maximum number of lines."""

    def __init__(self) -> None:
        self._lines = 0

    def __call__(self, level: Level, message: str, session: str = "") -> None:
        """Print a warning or an error; after `_MAX_REPORTS` reports, print nothing.

        This is a `WriteLog`, which ignores reports of other levels.
        """
        if level not in ("warning", "error"):
            return
        self._lines += 1
        if self._lines <= _MAX_REPORTS:
            print_error(escape_to_one_line(message)[:_MAX_REPORT_CHARS])
        elif self._lines == _MAX_REPORTS + 1:
            print_error("it reports more, which is not shown")
