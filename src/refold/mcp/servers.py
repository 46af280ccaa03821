"""The configuration of MCP servers: reads `.mcp.json` and `mcp_servers.json`.

Both shapes are understood, with the servers in an object `mcpServers` and without it. A
file is checked once, here; an invalid server is left out and reported, and the others
count. Pure. `app.mcp_servers` finds the files, and `connections` starts the servers.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any, Literal, TypeAlias, cast, get_args
from urllib.parse import urlsplit

from msgspec import Struct

from refold.errors import BadInput

# What is before the first `__` after `mcp__` must be exactly the server.
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
    """Login settings of a file; without them, refold registers itself.

    `issuer` binds the client to one authorization server: no other gets its secret.
    """

    client_id: str = ""
    client_secret: str = ""
    callback_port: int = 0
    scopes: str = ""
    issuer: str = ""
    client_metadata_url: str = ""  # of a document that identifies the client


class ServerConfig(Struct, frozen=True):
    """One server, as its file describes it: variables are not replaced yet.

    `writes`: the program may change files of the workspace, and those in the directories
    `writable`. `network`: it may use the network, of which it reaches `hosts`, patterns of
    `values.hosts`; none: all. `remote`: the provider of the model connects to it
    (`app.remote_servers`). `protocol` is the version to use; "": the newest that both have.
    `source` names the file. `visible` are paths that the program must see, wherever they
    are: `app.server_programs` fills it in.
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
        """The command or address, in one line. Values of variables are not shown."""
        return " ".join(self.command) if self.transport == "stdio" else self.url

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables whose values the server gets."""
        names = (
            name for text in _texts(self) for name, _ in _VARIABLE_PATTERN.findall(text)
        )
        return tuple(dict.fromkeys(names))


class ServerFile(Struct, frozen=True):
    """The content of one file. `problems` are sentences."""

    servers: tuple[ServerConfig, ...] = ()
    problems: tuple[str, ...] = ()


def read(text: bytes | str, source: str) -> ServerFile:
    """Return the servers of a file. Raises nothing: errors are among the problems."""
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
            if (one := server(name, entry, source)) is not None:
                servers.append(one)
        except BadInput as error:
            problems.append(f"{source}: {error}")
    return ServerFile(tuple(servers), tuple(problems))


def server(name: str, entry: object, source: str) -> ServerConfig | None:
    """Return a server, or None if it is switched off. Raises `BadInput`."""
    check_name(name)
    if not isinstance(entry, dict):
        raise BadInput(f"the MCP server {name!r} is not an object, but {entry!r:.60}")
    fields = _Fields(name, cast("dict[str, Any]", entry))
    if fields.truth("disabled", default=False) or not fields.truth("enabled", default=True):
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
    """Raise `BadInput` for a name whose tools could pass for those of another."""
    if not _NAME_PATTERN.fullmatch(name) or "__" in name:
        raise BadInput(
            f"{name!r} cannot be the name of an MCP server: use at most 32 letters, digits, "
            "- and single _, with a letter or a digit at both ends"
        )
    if name.lower() in _RESERVED_NAMES:
        raise BadInput(f"{name!r} is reserved: choose another name for this MCP server")


def resolve(config: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """Replace the variables by their values. Raises `BadInput` if one is missing."""
    missing = [
        name
        for text in _texts(config)
        for name, default in _defaults(text)
        if default is None and name not in environ
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
    """Return the values that the server gets, by name of variable, entry or header.

    A value may be there under several names: any of them can mark it as secret.
    """
    values = [(name, environ.get(name, "")) for name in config.variables]
    for name, text in (*config.environment, *config.headers):
        values.append((name, _fill_variables(text, environ)))
        values += ((name, environ.get(item, "")) for item, _ in _defaults(text))
    return tuple(filter(itemgetter(1), values))


def client_secret(config: ServerConfig, environ: Mapping[str, str]) -> str:
    return _fill_variables(config.oauth.client_secret, environ)


def variable_mark(config: ServerConfig, variable: str) -> str:
    """Return a mark for one variable of one server; it changes with the entry."""
    names = [name for name, _ in (*config.environment, *config.headers)]
    written = (config.transport, *names, *_texts(config))
    mark = sha256("\0".join(written).encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{variable} for {config.name} {mark}"


def describe_file(file: ServerFile) -> tuple[str, ...]:
    """Describe what the file would start or connect to, and its problems, in lines."""
    lines = list[str]()
    for one in file.servers:
        verb = "starts" if one.transport == "stdio" else "connects to"
        uses = f", with your {', '.join(one.variables)}" if one.variables else ""
        places = ["of the workspace"] * one.writes + [f"in {path}" for path in one.writable]
        can = f" and may change files {' and '.join(places)}" if places else ""
        lines.append(f"the MCP server {one.name} {verb} {one.summary}{uses}{can}")
    return (*lines, *file.problems)


def _texts(config: ServerConfig) -> Iterator[str]:
    yield from config.command
    yield from (value for _, value in (*config.environment, *config.headers))
    yield from (config.cwd, *config.writable, config.url)
    yield from (config.oauth.client_id, config.oauth.client_secret)


def _defaults(text: str) -> Iterator[tuple[str, str | None]]:
    for match in _VARIABLE_PATTERN.finditer(text):
        yield match[1], match[2]


def _fill_variables(text: str, environ: Mapping[str, str]) -> str:
    return _VARIABLE_PATTERN.sub(lambda m: environ.get(m[1], "") or m[2] or "", text)


def _check_url(config: ServerConfig) -> None:
    """Check that headers and tokens go over TLS, except on this machine."""
    try:
        parts = urlsplit(config.url)
        host, scheme = parts.hostname or "", parts.scheme
        _ = parts.port
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
    """Reads the fields of one server. All methods raise `BadInput`."""

    def __init__(self, name: str, table: Mapping[str, Any]) -> None:
        self._name, self._said = name, table

    def transport(self) -> Transport:
        kind = self._said.get("type", self._said.get("transport"))
        default = "stdio" if "command" in self._said else "http"
        value = _TRANSPORT_KINDS.get(kind, "") if kind is not None else default
        needed = "command" if value == "stdio" else "url"
        if not value:
            self._note_wrong_field("type", "stdio, http or sse")
        if needed not in self._said:
            raise BadInput(f"the MCP server {self._name!r} has no {needed}")
        return cast("Transport", value)

    def command(self) -> tuple[str, ...]:
        first: object = self._said["command"]
        begins = cast("list[object]", first) if isinstance(first, list) else [first]
        words = [*begins, *self._list("args")]
        for word in words:
            if not isinstance(word, str) or "\0" in word:
                self._note_wrong_field("command", "text, with a list of texts in args")
        if not words or not words[0]:
            self._note_wrong_field("command", "the program to start")
        return tuple(cast("list[str]", words))

    def environment(self) -> tuple[tuple[str, str], ...]:
        pairs = self.pairs("env")
        for name, _ in pairs:
            if not _WORD_PATTERN.fullmatch(name):
                raise BadInput(
                    f"the MCP server {self._name!r}: env has {name!r}, which cannot be the "
                    "name of a variable"
                )
        return pairs

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        table = self._said.get(key, {})
        items = cast("dict[str, Any]", table).items() if isinstance(table, dict) else ()
        bad = not isinstance(table, dict) or not all(
            isinstance(v, str | int) and not set(f"{n}{v}") & {"\0", "\r", "\n"}
            for n, v in items
        )
        if bad:
            self._note_wrong_field(key, "an object of texts")
        return tuple((name, str(value)) for name, value in items)

    def oauth(self) -> OAuthConfig:
        value = self._said.get("oauth", {})
        if not isinstance(value, dict):
            self._note_wrong_field("oauth", "an object")
        inner = _Fields(self._name, cast("dict[str, Any]", value))
        port = inner._said.get("callbackPort", 0)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            inner._note_wrong_field("callbackPort", "a port")
        scopes = inner._said.get("scopes", "")
        if isinstance(scopes, list):
            scopes = " ".join(map(str, cast("list[object]", scopes)))
        if not isinstance(scopes, str) or not scopes.isprintable():
            inner._note_wrong_field("scopes", "text, as 'read write'")
        return OAuthConfig(
            inner.text("clientId"),
            inner.text("clientSecret"),
            cast("int", port),
            cast("str", scopes),
            inner.text("issuer"),
            inner.page("clientMetadataUrl"),
        )

    def page(self, key: str) -> str:
        if (value := self.text(key)) and not _PAGE_PATTERN.fullmatch(value):
            self._note_wrong_field(key, "the https address of a document")
        return value

    def text(self, key: str) -> str:
        value = self._said.get(key, "")
        if not isinstance(value, str) or "\0" in value:
            self._note_wrong_field(key, "text")
        return cast("str", value)

    def truth(self, key: str, *, default: bool) -> bool:
        value = self._said.get(key, default)
        if not isinstance(value, bool):
            self._note_wrong_field(key, "true or false")
        return cast("bool", value)

    def hosts(self) -> tuple[str, ...]:
        value = self._said.get("hosts", [])
        if not isinstance(value, list):
            self._note_wrong_field("hosts", "a list of hosts")
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
        value = self._said.get("writable", [])
        if not isinstance(value, list):
            self._note_wrong_field("writable", "a list of directories")
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
        if (value := self.truth("remote", default=False)) and transport == "stdio":
            raise BadInput(
                f"the MCP server {self._name!r} cannot be remote: a provider starts no programs, "
                "it connects to an address"
            )
        return value

    def protocol(self) -> str:
        value = self.text("protocol")
        if value and value not in PROTOCOL_VERSIONS:
            self._note_wrong_field("protocol", f"one of {', '.join(PROTOCOL_VERSIONS)}")
        return value

    def log_level(self) -> LogLevel:
        value = self.text("logLevel") or "info"
        if value not in get_args(LogLevel):
            self._note_wrong_field("logLevel", f"one of {', '.join(get_args(LogLevel))}")
        return cast("LogLevel", value)

    def milliseconds(self, key: str, default: float) -> float:
        value = self._said.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self._note_wrong_field(key, "milliseconds, more than 0")
        return float(cast("float", value)) / 1000

    def _list(self, key: str) -> Sequence[object]:
        value = self._said.get(key, [])
        if not isinstance(value, list):
            self._note_wrong_field(key, "a list of texts")
        return cast("list[object]", value)

    def _note_wrong_field(self, key: str, expectation: str) -> None:
        text = repr(self._said.get(key))
        raise BadInput(
            f"the MCP server {self._name!r}: {key} must be {expectation}, and not {text:.60}"
        )
