"""`refold mcp search WORDS`, and `refold mcp add` with the name of a server in a registry.

`--registry` or `$REFOLD_MCP_REGISTRY` names the registry; the default is the public one.
`mcp.registry` parses the registry's answers, and makes entries for the file of servers.
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

_MAX_BYTES = 5_000_000  # the size of an answer
_SEARCH_SECONDS = 20.0
_MAX_RESULTS = 30  # the length of a list
_ABOUT_CHARS = 100  # the length of a description
_REGISTRY_VARIABLE = "REFOLD_MCP_REGISTRY"


def add_arguments(parsers: Any, new: ArgumentParser) -> None:
    """Add the subcommand `search` to `parsers`, and flags to `new`, the parser of `add`."""
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
        help="from a registry: which kind of package or address to use",
    )
    new.add_argument(
        "--as",
        dest="alias",
        metavar="NAME",
        help="from a registry: the name to give the server here",
    )


def search(args: Namespace) -> int:
    """Print the servers of a registry whose names contain the words. Return exit code 0."""
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
    """Return the entry of the named server for the file of MCP servers.

    `values` are the inputs of the server that the user passed, by name. The user is asked for
    missing inputs. Raises `BadInput`.
    """
    registry = _registry(args)
    try:
        server = parse_server(_fetch(registry, server_url(registry, args.name)))
    except StatusError as error:
        raise BadInput(
            f"the registry {registry} has no server {args.name!r}: refold mcp search WORDS "
            "shows which there are"
        ) from error
    sources = server.sources
    if not sources:
        raise BadInput(f"{args.name} has no package or address that refold can use")
    kind = args.kind or next(iter(sources))
    if kind not in sources:
        raise BadInput(f"{args.name} has no {kind}: choose from {', '.join(sources)}")
    write(
        f"{escape_to_one_line(server.name)} {escape_to_one_line(server.version)}, from {kind}"
    )
    other_kinds = [other for other in sources if other != kind]
    write(f" (--from chooses: {', '.join(other_kinds)})\n" if other_kinds else "\n")
    answers = _InputValues(values)
    table = entry(sources[kind], answers)
    # values that the registry does not mention
    extra = {name: text for name, text in values.items() if name not in answers.names_used}
    if extra:
        key = "headers" if "url" in table else "env"
        table[key] = {**table.get(key, {}), **extra}
    line = table.get("url") or " ".join((table["command"], *table["args"]))
    write(f"  {escape_to_one_line(line)}\n")
    return table


class _InputValues:
    """Returns the values of the inputs of a server.

    A value was passed, is typed by the user, or is a reference to an environment variable.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._given = values
        self._known = dict[str, str]()

    def __call__(self, name: str, field: Input) -> str:
        """Return the value of the input `name`. The user is asked for an input at most once."""
        if name not in self._known:
            self._known[name] = self._value(name, field)
        return self._known[name]

    @property
    def names_used(self) -> Container[str]:
        return self._known

    def _value(self, name: str, field: Input) -> str:
        """Return the value of an input: passed, a reference, the default, or typed.

        A required secret becomes a reference to an environment variable, unless it was passed.
        """
        if name in self._given:
            return self._given[name]
        if field.is_secret and (field.is_required or name in os.environ):
            return self._secret_reference(name, field)
        default = "" if field.default is None else str(field.default)
        if not field.is_required:
            return default
        if not is_interactive():
            return default or self._unset_reference(name, field)
        about = f" ({escape_to_one_line(field.description)})" if field.description else ""
        choices = f" [{', '.join(field.choices)}]" if field.choices else ""
        preset = f" [{default}]" if default else ""
        return _ask(f"{escape_to_one_line(name)}{about}{choices}{preset}: ") or default

    def _secret_reference(self, name: str, field: Input) -> str:
        """Return a reference to the environment variable with the secret.

        Return "" if the user refuses the reference. Raises `BadInput` if the user must be asked
        but there is no terminal.
        """
        variable = _variable_name(name)
        if variable not in os.environ:
            return self._unset_reference(name, field)
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

    def _unset_reference(self, name: str, field: Input) -> str:
        """Return a reference to an input's variable, and print that the user must set it.

        If the variable is already set, print nothing, and return "" instead.
        """
        variable = _variable_name(name)
        if variable in os.environ:
            return ""
        about = f": {escape_to_one_line(field.description)}" if field.description else ""
        write(f"  It needs ${variable}{about}. Set it before you start refold.\n")
        return f"${{{variable}}}"


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
    kinds_text = ", ".join(kinds) or "nothing that refold can use"
    write(
        f"{escape_to_one_line(server.name)}  {escape_to_one_line(server.version)}, {kinds_text}\n"
    )
    write(f"    {about}\n")


def _registry(args: Namespace) -> str:
    """Return the address of the registry.

    Raises `BadInput` for an address without TLS, because the registry decides which programs
    run here.
    """
    registry = args.registry or os.environ.get(_REGISTRY_VARIABLE, "") or PUBLIC_REGISTRY
    address = web_address(registry)
    if address.scheme != "https" and not is_local_name(address.host):
        raise BadInput(f"{registry!r} is not an https address: a registry needs TLS")
    return registry


def _fetch(registry: str, url: str) -> bytes:
    """Return the answer of the registry to a request of `url`.

    Raises `StatusError` if the registry does not know the address, otherwise `BadInput`.
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
