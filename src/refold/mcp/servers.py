"""Reads the configuration of MCP servers from `.mcp.json` and `mcp_servers.json`. Pure.

In a file, an object `mcpServers` contains the servers, or they are at the top. Files are
checked only here; an invalid server is left out and reported, and the others are used.
`app.mcp_servers` finds the files, and `connections` starts the servers.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, Literal, TypeAlias, cast, get_args
from urllib.parse import urlsplit

from msgspec import Struct

from refold.errors import BadInput

# The text before the first `__` after `mcp__` must be exactly the name of the server.
_NAME_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?")
_RESERVED_NAMES = frozenset(("mcp", "read_resource", "refold"))
_VARIABLE_PATTERN = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PAGE_PATTERN = re.compile(r"https://[^/?#\s]+/[^?#\s]+")
_WORD_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRANSPORT_KINDS: Mapping[object, str] = {
    "stdio": "stdio", "http": "http", "streamable-http": "http", "streamableHttp": "http",
    "sse": "sse",
}  # fmt: skip
PROTOCOL_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
_LOOPBACK_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))
_CALL_SECONDS, _CONNECT_SECONDS = 300.0, 30.0

Transport: TypeAlias = Literal["stdio", "http", "sse"]
LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]


class OAuthConfig(Struct, frozen=True):
    """The login settings of a server. Without a `client_id`, refold registers a client itself.

    `issuer` names the only authorization server that gets the client's secret.
    """

    client_id: str = ""
    client_secret: str = ""
    callback_port: int = 0
    scopes: str = ""
    issuer: str = ""
    client_metadata_url: str = ""  # the URL of a document that identifies the client


class ServerConfig(Struct, frozen=True):
    """The configuration of one server in a file, with variables that are not replaced yet.

    With `writes`, the server's program may change files of the workspace; without it, only
    files in the directories `writable`. With `network`, it may reach `hosts`, patterns of
    `values.hosts`; if there are none, every host. With `remote`, the model provider connects to
    the server (`app.remote_servers`). `protocol` is the version to use; "" means the newest
    that refold and the server have in common. `source` is the file. `visible` are paths that
    the program must always see; `app.server_programs` fills them in.
    """

    name: str
    transport: Transport
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    oauth: OAuthConfig = OAuthConfig()
    writes: bool = False
    network: bool = True
    hosts: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    remote: bool = False
    protocol: str = ""
    log_level: LogLevel = "info"
    call_seconds: float = _CALL_SECONDS
    connect_seconds: float = _CONNECT_SECONDS
    source: str = ""

    @property
    def summary(self) -> str:
        """The command or address on one line, with variables that are not replaced."""
        return " ".join(self.command) if self.transport == "stdio" else self.url

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of environment variables whose values the server gets."""
        names = (
            name for text in _texts(self) for name, _ in _VARIABLE_PATTERN.findall(text)
        )
        return tuple(dict.fromkeys(names))


class ServerFile(Struct, frozen=True):
    """The servers of one file, and its problems as sentences."""

    servers: tuple[ServerConfig, ...] = ()
    problems: tuple[str, ...] = ()


def read(text: bytes | str, source: str) -> ServerFile:
    """Parse a file of servers. An error is not raised, but is among the file's problems."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        return ServerFile(problems=(f"{source} is not valid JSON: {error}",))
    if isinstance(table, dict) and "mcpServers" in table:
        table = cast("dict[str, Any]", table)["mcpServers"]
    if not isinstance(table, dict):
        return ServerFile(
            problems=(f"{source}: there is no object of servers, by their names",)
        )
    servers, problems = list[ServerConfig](), list[str]()
    for name, entry in cast("dict[str, Any]", table).items():
        try:
            config = server(name, entry, source)
            if config is not None:
                servers.append(config)
        except BadInput as error:
            problems.append(f"{source}: {error}")
    return ServerFile(tuple(servers), tuple(problems))


def server(name: str, entry: object, source: str) -> ServerConfig | None:
    """Parse the entry of one server. Return None if it is disabled. Raises `BadInput`."""
    check_name(name)
    if not isinstance(entry, dict):
        raise BadInput(f"the MCP server {name!r} is not an object, but {entry!r:.60}")
    fields = _Fields(name, cast("dict[str, Any]", entry))
    is_disabled = fields.truth("disabled", default=False)
    if is_disabled or not fields.truth("enabled", default=True):
        return None
    transport = fields.transport()
    command = fields.command() if transport == "stdio" else ()
    return ServerConfig(
        name=name,
        transport=transport,
        command=command,
        environment=fields.environment(),
        cwd=fields.text("cwd"),
        url=fields.text("url") if transport != "stdio" else "",
        headers=fields.pairs("headers"),
        oauth=fields.oauth(),
        writes=fields.truth("writes", default=False),
        network=fields.truth("network", default=True),
        hosts=fields.hosts(),
        writable=fields.writable(transport),
        remote=fields.remote(transport),
        protocol=fields.protocol(),
        log_level=fields.log_level(),
        call_seconds=fields.milliseconds("timeout", _CALL_SECONDS),
        connect_seconds=fields.milliseconds("startupTimeout", _CONNECT_SECONDS),
        source=source,
    )


def check_name(name: str) -> None:
    """Raise `BadInput` if a server may not have this name, for example "a__b".

    Its tools could be mistaken for those of another server.
    """
    if not _NAME_PATTERN.fullmatch(name) or "__" in name:
        raise BadInput(
            f"{name!r} cannot be the name of an MCP server: use at most 32 letters, digits, "
            "- and single _, with a letter or a digit at both ends"
        )
    if name.lower() in _RESERVED_NAMES:
        raise BadInput(f"{name!r} is reserved: choose another name for this MCP server")


def resolve(config: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """Return the configuration with the values of its variables.

    Raises `BadInput` if a variable without a default is not set.
    """
    variables = chain.from_iterable(map(_variables_in, _texts(config)))
    missing = [
        name for name, default in variables if default is None and name not in environ
    ]
    if missing:
        names = " and ".join(f"${{{name}}}" for name in dict.fromkeys(missing))
        raise BadInput(
            f"the MCP server {config.name!r} in {config.source} is off: it needs {names}, "
            "which is not set; set it, or write a default as ${NAME:-default}"
        )

    def fill(text: str) -> str:
        return _fill_variables(text, environ)

    def fill_all(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, fill(value)) for name, value in pairs)

    from msgspec.structs import replace

    result = replace(
        config,
        command=tuple(map(fill, config.command)),
        environment=fill_all(config.environment),
        cwd=fill(config.cwd),
        writable=tuple(map(fill, config.writable)),
        url=fill(config.url),
        headers=fill_all(config.headers),
        oauth=replace(
            config.oauth,
            client_id=fill(config.oauth.client_id),
            client_secret=fill(config.oauth.client_secret),
        ),
    )
    if result.url:
        _check_url(result)
    return result


def variable_values(
    config: ServerConfig, environ: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return all values that the server gets, each in a pair with its name.

    The name is that of a variable, or of an entry in `env` or a header with the value. A value
    may be in several pairs, because any of its names can mark the value as secret. Empty values
    are left out.
    """
    values = [(name, environ.get(name, "")) for name in config.variables]
    for name, text in (*config.environment, *config.headers):
        values.append((name, _fill_variables(text, environ)))
        values += ((name, environ.get(item, "")) for item, _ in _variables_in(text))
    return tuple((name, value) for name, value in values if value)


def client_secret(config: ServerConfig, environ: Mapping[str, str]) -> str:
    """Return the secret of the OAuth client, with variables replaced; "" if there is none."""
    return _fill_variables(config.oauth.client_secret, environ)


def variable_mark(config: ServerConfig, variable: str) -> str:
    """Return a text that identifies a variable of a server, and changes with its entry."""
    names = [name for name, _ in (*config.environment, *config.headers)]
    entry = "\0".join((config.transport, *names, *_texts(config)))
    digest = sha256(entry.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{variable} for {config.name} {digest}"


def describe_file(file: ServerFile) -> tuple[str, ...]:
    """Return lines that say what the file would start or connect to, and its problems."""
    lines = list[str]()
    for one in file.servers:
        verb = "starts" if one.transport == "stdio" else "connects to"
        variables = f", with your {', '.join(one.variables)}" if one.variables else ""
        places = ["of the workspace"] if one.writes else []
        places += (f"in {path}" for path in one.writable)
        changes = f" and may change files {' and '.join(places)}" if places else ""
        lines.append(f"the MCP server {one.name} {verb} {one.summary}{variables}{changes}")
    return (*lines, *file.problems)


def _texts(config: ServerConfig) -> Iterator[str]:
    """Yield the texts of the configuration in which variables are replaced."""
    yield from config.command
    yield from (value for _, value in (*config.environment, *config.headers))
    yield from (config.cwd, *config.writable, config.url)
    yield from (config.oauth.client_id, config.oauth.client_secret)


def _variables_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each variable in the text, with its default value or None."""
    for match in _VARIABLE_PATTERN.finditer(text):
        yield match[1], match[2]


def _fill_variables(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with each variable replaced by its value or its default.

    The default is used if the value is empty or missing. Without a default, "" is used.
    """
    return _VARIABLE_PATTERN.sub(lambda m: environ.get(m[1], "") or m[2] or "", text)


def _check_url(config: ServerConfig) -> None:
    """Raise `BadInput` for an invalid address, or one to which headers would go without TLS."""
    try:
        parts = urlsplit(config.url)
        host, scheme = parts.hostname or "", parts.scheme
        _ = parts.port  # raises an error if it is invalid
    except ValueError as error:
        raise BadInput(
            f"the MCP server {config.name!r}: {config.url!r} is not an address: {error}"
        ) from error
    if scheme not in ("http", "https") or not host:
        raise BadInput(
            f"the MCP server {config.name!r}: {config.url!r} is not an http or https address"
        )
    if scheme == "http" and config.headers and host not in _LOOPBACK_HOSTS:
        raise BadInput(
            f"the MCP server {config.name!r} would send its headers to {host} without TLS: "
            "use an https address"
        )


class _Fields:
    """Reads the fields of one server's entry. All methods raise `BadInput`."""

    def __init__(self, name: str, table: Mapping[str, Any]) -> None:
        self._name, self._entry = name, table

    def transport(self) -> Transport:
        """Return how to reach the server; without a type, the field `command` decides."""
        kind = self._entry.get("type", self._entry.get("transport"))
        if kind is None:
            kind = "stdio" if "command" in self._entry else "http"
        value = _TRANSPORT_KINDS.get(kind, "") if isinstance(kind, str) else ""
        if not value:
            self._refuse_field("type", "stdio, http or sse")
        needed = "command" if value == "stdio" else "url"
        if needed not in self._entry:
            raise BadInput(f"the MCP server {self._name!r} has no {needed}")
        return cast("Transport", value)

    def command(self) -> tuple[str, ...]:
        """Return the program and its arguments; `command` may be a text or a list of texts."""
        command: object = self._entry["command"]
        if not isinstance(command, list):
            command = [command]
        words = [*cast("list[object]", command), *self._list("args")]
        for word in words:
            if not isinstance(word, str) or "\0" in word:
                self._refuse_field("command", "text, with a list of texts in args")
        if not words or not words[0]:
            self._refuse_field("command", "the program to start")
        return tuple(cast("list[str]", words))

    def environment(self) -> tuple[tuple[str, str], ...]:
        """Return the variables in `env` as pairs of name and value."""
        pairs = self.pairs("env")
        for name, _ in pairs:
            if not _WORD_PATTERN.fullmatch(name):
                raise BadInput(
                    f"the MCP server {self._name!r}: env has {name!r}, which cannot be the "
                    "name of a variable"
                )
        return pairs

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return the names and texts of an object.

        Texts with line ends are refused, as in headers.
        """
        table = self._entry.get(key, {})
        if not isinstance(table, dict):
            self._refuse_field(key, "an object of texts")
        items = cast("dict[str, Any]", table).items()
        for name, value in items:
            has_line_end = not {"\0", "\r", "\n"}.isdisjoint(f"{name}{value}")
            if not isinstance(value, str | int) or has_line_end:
                self._refuse_field(key, "an object of texts")
        return tuple((name, str(value)) for name, value in items)

    def oauth(self) -> OAuthConfig:
        """Return the settings for a login. A missing text is "", and a missing port is 0."""
        value = self._entry.get("oauth", {})
        if not isinstance(value, dict):
            self._refuse_field("oauth", "an object")
        inner = _Fields(self._name, cast("dict[str, Any]", value))
        port = inner._entry.get("callbackPort", 0)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            inner._refuse_field("callbackPort", "a port")
        scopes = inner._entry.get("scopes", "")
        if isinstance(scopes, list):
            scopes = " ".join(map(str, cast("list[object]", scopes)))
        if not isinstance(scopes, str) or not scopes.isprintable():
            inner._refuse_field("scopes", "text, as 'read write'")
        return OAuthConfig(
            client_id=inner.text("clientId"),
            client_secret=inner.text("clientSecret"),
            callback_port=cast("int", port),
            scopes=cast("str", scopes),
            issuer=inner.text("issuer"),
            client_metadata_url=inner.page("clientMetadataUrl"),
        )

    def page(self, key: str) -> str:
        """Return the https address in this field; "" if the field is missing."""
        if (value := self.text(key)) and not _PAGE_PATTERN.fullmatch(value):
            self._refuse_field(key, "the https address of a document")
        return value

    def text(self, key: str) -> str:
        """Return the text in this field; "" if the field is missing."""
        value = self._entry.get(key, "")
        if not isinstance(value, str) or "\0" in value:
            self._refuse_field(key, "text")
        return cast("str", value)

    def truth(self, key: str, *, default: bool) -> bool:
        """Return the true or false in this field, or `default` if the field is missing."""
        value = self._entry.get(key, default)
        if not isinstance(value, bool):
            self._refuse_field(key, "true or false")
        return cast("bool", value)

    def hosts(self) -> tuple[str, ...]:
        """Return the host patterns in the field, each once; () if there are none."""
        value = self._entry.get("hosts", [])
        if not isinstance(value, list):
            self._refuse_field("hosts", "a list of hosts")
        if not value:
            return ()
        from refold.values.hosts import expand_all

        try:
            return expand_all(map(str, cast("list[object]", value)))
        except ValueError as error:
            raise BadInput(
                f"the hosts of the MCP server {self._name!r}: {error}"
            ) from error

    def writable(self, transport: Transport) -> tuple[str, ...]:
        """Return the directories that the program may write to; () if none are named."""
        value = self._entry.get("writable", [])
        if not isinstance(value, list):
            self._refuse_field("writable", "a list of directories")
        texts = tuple(map(str, cast("list[object]", value)))
        for text in texts:
            if not text.startswith(("/", "~/", "${")) or "\0" in text:
                raise BadInput(
                    f"the MCP server {self._name!r}: writable has {text!r}, which is not a "
                    "directory as /srv/notes or ~/notes"
                )
        if texts and transport != "stdio":
            raise BadInput(
                f"the MCP server {self._name!r} has an address, and writes no files here: take "
                "writable out of its entry"
            )
        return texts

    def remote(self, transport: Transport) -> bool:
        """Return whether the provider of the model, not refold, connects to the server."""
        if (value := self.truth("remote", default=False)) and transport == "stdio":
            raise BadInput(
                f"the MCP server {self._name!r} cannot be remote: a provider starts no programs, "
                "it connects to an address"
            )
        return value

    def protocol(self) -> str:
        """Return the version of the protocol to use; "" if the entry names none."""
        value = self.text("protocol")
        if value and value not in PROTOCOL_VERSIONS:
            self._refuse_field("protocol", f"one of {', '.join(PROTOCOL_VERSIONS)}")
        return value

    def log_level(self) -> LogLevel:
        """Return the level from which on the server reports what it logs; "info" if not set."""
        value = self.text("logLevel") or "info"
        if value not in get_args(LogLevel):
            self._refuse_field("logLevel", f"one of {', '.join(get_args(LogLevel))}")
        return cast("LogLevel", value)

    def milliseconds(self, key: str, default: float) -> float:
        """Return the milliseconds in this field as seconds. `default` is in seconds, too."""
        value = self._entry.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self._refuse_field(key, "milliseconds, more than 0")
        return float(cast("float", value)) / 1000

    def _list(self, key: str) -> Sequence[object]:
        """Return the list in this field, whose items are not checked; [] if it is missing."""
        value = self._entry.get(key, [])
        if not isinstance(value, list):
            self._refuse_field(key, "a list of texts")
        return cast("list[object]", value)

    def _refuse_field(self, key: str, expectation: str) -> None:
        """Raise `BadInput`: this field must be as `expectation` says."""
        text = repr(self._entry.get(key))
        raise BadInput(
            f"the MCP server {self._name!r}: {key} must be {expectation}, and not {text:.60}"
        )
