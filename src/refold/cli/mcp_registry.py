"""`refold mcp search WORDS`, and `refold mcp add` with the name of a server in a registry.

`mcp.registry` reads the answers of the registry and makes entries of them. Which registry is asked:
`--registry`, `$REFOLD_MCP_REGISTRY`, or the public one.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Container, Mapping
from typing import Any

from refold.cli.output import confirm, is_interactive
from refold.errors import BadInput
from refold.headless.streams import print_document, write
from refold.mcp.registry import (
    PACKAGE_KINDS,
    PUBLIC_REGISTRY,
    Input,
    RegistryServer,
    entry,
    parse_search,
    parse_server,
    search_url,
    server_url,
)
from refold.provider.blocking_http import StatusError, open_url
from refold.values.printable_names import shorten
from refold.values.web_address import is_local_name, web_address
from refold.views.escape import escape_to_one_line

_MAX_BYTES = 5_000_000  # of an answer
_SEARCH_SECONDS = 20.0
_MAX_RESULTS = 30  # servers that are listed
_ABOUT_CHARS = 100  # characters of a description
_REGISTRY_VARIABLE = "REFOLD_MCP_REGISTRY"


def add_arguments(parsers: Any, new: ArgumentParser) -> None:
    """`parsers` has the subcommands of `refold mcp`, `new` is that of `add`."""
    search = parsers.add_parser("search", help="search a registry of MCP servers")
    search.add_argument("words", nargs="+", metavar="WORDS")
    search.add_argument("--json", action="store_true", help="print JSON lines")
    for parser in (search, new):
        parser.add_argument(
            "--registry",
            metavar="URL",
            default="",
            help=f"the registry (${_REGISTRY_VARIABLE}, or {PUBLIC_REGISTRY})",
        )
    new.add_argument(
        "--from",
        dest="kind",
        choices=PACKAGE_KINDS,
        help="of a registry: which package or address",
    )
    new.add_argument(
        "--as", dest="alias", metavar="NAME", help="of a registry: its name here"
    )


def search(args: Namespace) -> int:
    words = " ".join(args.words)
    registry = _registry(args)
    result = parse_search(_fetch(registry, search_url(registry, words, _MAX_RESULTS)))
    for server in result.servers:
        _print(server, as_json=args.json)
    if args.json:
        return 0
    if not result.servers:
        write(
            f"The registry has no server whose name contains {escape_to_one_line(words)!r}.\n"
        )
    elif result.more:
        write(
            f"These are the first {_MAX_RESULTS}: there are more. Search for more of a name.\n"
        )
    else:
        write("refold mcp add NAME adds one.\n")
    return 0


def registry_entry(args: Namespace, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry of the named server, with the values that the user passes or types.

    Raises `BadInput`.
    """
    registry = _registry(args)
    try:
        server = parse_server(_fetch(registry, server_url(registry, args.name)))
    except StatusError as error:
        raise BadInput(
            f"the registry {registry} has no server {args.name!r}: refold mcp search WORDS "
            "shows which there are"
        ) from error
    ways = server.sources
    if not ways:
        raise BadInput(f"{args.name} has no package or address that refold can use")
    kind = args.kind or next(iter(ways))
    if kind not in ways:
        raise BadInput(f"{args.name} has no {kind}: choose from {', '.join(ways)}")
    write(
        f"{escape_to_one_line(server.name)} {escape_to_one_line(server.version)}, from {kind}"
    )
    others = [way for way in ways if way != kind]
    write(f" (--from chooses: {', '.join(others)})\n" if others else "\n")
    answers = _Answers(values)
    table = entry(ways[kind], answers)
    more = {name: value for name, value in values.items() if name not in answers.names_used}
    if more:  # what the registry does not know of
        key = "headers" if "url" in table else "env"
        table[key] = {**table.get(key, {}), **more}
    line = table.get("url") or " ".join((table["command"], *table["args"]))
    write(f"  {escape_to_one_line(line)}\n")
    return table


class _Answers:
    """The values that a server takes: given, asked for, or the name of a variable."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._given, self._known = values, dict[str, str]()

    def __call__(self, name: str, field: Input) -> str:
        if name not in self._known:
            self._known[name] = self._value(name, field)
        return self._known[name]

    @property
    def names_used(self) -> Container[str]:
        return self._known

    def _value(self, name: str, field: Input) -> str:
        if name in self._given:
            return self._given[name]
        if field.is_secret and (field.is_required or name in os.environ):
            return self._secret(name, field)
        default = "" if field.default is None else str(field.default)
        if not field.is_required:
            return default
        if not is_interactive():
            return default or self._variable(name, field)
        about = f" ({escape_to_one_line(field.description)})" if field.description else ""
        choices = f" [{', '.join(field.choices)}]" if field.choices else ""
        preset = f" [{default}]" if default else ""
        return _ask(f"{escape_to_one_line(name)}{about}{choices}{preset}: ") or default

    def _secret(self, name: str, field: Input) -> str:
        """A reference to a variable. Raises `BadInput` where only the user can allow that."""
        if (variable := _variable_name(name)) not in os.environ:
            return self._variable(name, field)
        if not is_interactive():
            if not field.is_required:
                return ""
            raise BadInput(
                f"{name} is a secret: give it with --env {name}='${{{variable}}}', "
                "if this server may have your variable"
            )
        if confirm(
            f"The server takes {escape_to_one_line(name)}: give it your ${variable}?"
        ):
            return f"${{{variable}}}"
        return ""

    def _variable(self, name: str, field: Input) -> str:
        """A reference to a variable that is not set, and a hint that asks the user to set
        it."""
        if (variable := _variable_name(name)) not in os.environ:
            about = (
                f": {escape_to_one_line(field.description)}" if field.description else ""
            )
            write(f"  It needs ${variable}{about}. Set it before you start refold.\n")
            return f"${{{variable}}}"
        return ""


def _variable_name(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()


def _ask(question: str) -> str:
    write(question)
    return sys.stdin.readline().strip()


def _print(server: RegistryServer, *, as_json: bool) -> None:
    kinds = list(server.sources)
    if as_json:
        row = {"name": server.name, "version": server.version, "from": kinds,
               "description": server.description}  # fmt: skip
        print_document(row)
        return
    about = shorten(escape_to_one_line(server.description), _ABOUT_CHARS)
    ways = ", ".join(kinds) or "nothing that refold can use"
    write(
        f"{escape_to_one_line(server.name)}  {escape_to_one_line(server.version)}, {ways}\n"
    )
    write(f"    {about}\n")


def _registry(args: Namespace) -> str:
    """Return the address of the registry.

    Raises `BadInput` for one without TLS: the registry decides what is started here.
    """
    registry = args.registry or os.environ.get(_REGISTRY_VARIABLE, "") or PUBLIC_REGISTRY
    address = web_address(registry)
    if address.scheme != "https" and not is_local_name(address.host):
        raise BadInput(f"{registry!r} is not an https address: a registry needs TLS")
    return registry


def _fetch(registry: str, url: str) -> bytes:
    """Read an answer of the registry.

    Raises `BadInput`, or `StatusError` if the registry does not know the address.
    """
    try:
        with open_url(url, os.environ, seconds=_SEARCH_SECONDS) as download:
            return download.read_all(_MAX_BYTES)
    except StatusError as error:
        if error.status == 404:
            raise
        raise BadInput(f"the registry {registry} cannot be asked: {error}") from error
    except OSError as error:
        raise BadInput(f"the registry {registry} cannot be asked: {error}") from error
