"""Parses answers of a registry of MCP servers, and makes entries for a file of servers. Pure.

A server is an npm or PyPI package, a container image, or an address; if there are several, one
is used. The user is asked for values that only the user knows. A text of the registry that
names an environment variable of the user, like ${HOME}, is refused, because the variable's
value would go to the server. `cli.mcp_registry` sends the requests and asks the user.

Every account can publish in the public registry. So the value of a secret is never written to
the entry, which refers to a variable instead. If the user has set this variable, its value goes
to the server only after a yes at the terminal or with `--env`. A registry needs TLS, unless it
is on this machine.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from refold.errors import BadInput

PUBLIC_REGISTRY = "https://registry.modelcontextprotocol.io"
# A server is installed from the first of these kinds that it has.
PACKAGE_KINDS = ("npm", "pypi", "http", "sse", "oci")
_API_PATH = "v0.1/servers"
_SLOT_PATTERN = re.compile(r"\{([A-Za-z0-9_-]+)\}")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9]+")
_MAX_NAME_CHARS = 32
_TRANSPORT_NAMES = {"streamable-http": "http", "http": "http", "sse": "sse"}


class Input(Struct, frozen=True, rename="camel"):
    """A value that a server needs for an environment variable, a header or an argument."""

    name: str = ""
    description: str = ""
    value: str = ""
    value_hint: str = ""
    default: Any = None
    is_required: bool = False
    is_secret: bool = False
    choices: tuple[str, ...] | None = None
    type: str = ""
    variables: "dict[str, Input] | None" = None


class Remote(Struct, frozen=True, rename="camel"):
    """A server at an address."""

    type: str = ""
    url: str = ""
    headers: tuple[Input, ...] | None = None
    variables: dict[str, Input] | None = None


class Package(Struct, frozen=True, rename="camel"):
    """A package from which a server is started."""

    registry_type: str = ""
    identifier: str = ""
    version: str = ""
    runtime_arguments: tuple[Input, ...] | None = None
    package_arguments: tuple[Input, ...] | None = None
    environment_variables: tuple[Input, ...] | None = None
    transport: Remote = Remote("stdio")


class RegistryServer(Struct, frozen=True, rename="camel"):
    name: str
    description: str = ""
    version: str = ""
    packages: tuple[Package, ...] | None = None
    remotes: tuple[Remote, ...] | None = None

    @property
    def sources(self) -> "dict[str, Package | Remote]":
        """The first usable package or address of each kind, in the order of `PACKAGE_KINDS`."""
        result = dict[str, Package | Remote]()
        for package in self.packages or ():
            if package.transport.type in ("", "stdio"):
                result.setdefault(package.registry_type, package)
        for remote in self.remotes or ():
            result.setdefault(_TRANSPORT_NAMES.get(remote.type, ""), remote)
        return {kind: result[kind] for kind in PACKAGE_KINDS if kind in result}


class SearchResult(Struct, frozen=True):
    servers: tuple[RegistryServer, ...]
    more: bool


# Returns the value of an input; "" if the user gives none. The text is the input's name for
# the user.
Answer: TypeAlias = Callable[[str, Input], str]


def search_url(registry: str, words: str, limit: int) -> str:
    """Return the address of a search in a registry, with at most `limit` results.

    Of each server, only the newest version is searched.
    """
    query = urlencode({"search": words, "version": "latest", "limit": limit})
    return f"{registry.rstrip('/')}/{_API_PATH}?{query}"


def server_url(registry: str, name: str) -> str:
    return f"{registry.rstrip('/')}/{_API_PATH}/{quote(name, safe='')}/versions/latest"


def parse_search(content: bytes) -> SearchResult:
    """Parse the result of a search, without invalid servers. Raises `BadInput`."""
    page = _decode(content, _Page)
    servers = list[RegistryServer]()
    for raw in page.servers or ():
        try:
            servers.append(_server(raw))
        except BadInput:
            continue
    return SearchResult(tuple(servers), bool(page.metadata.get("nextCursor")))


def parse_server(content: bytes) -> RegistryServer:
    """Parse the description of one server. Raises `BadInput`."""
    return _server(msgspec.Raw(content))


def is_registry_name(name: str) -> bool:
    """Return whether this is a server's name in a registry, like io.github.user/server."""
    namespace, _, server = name.partition("/")
    if not server or "/" in server or "://" in name:
        return False
    return "." in namespace


def local_name(name: str) -> str:
    """Return a name for a file of servers, made from a server's name in a registry."""
    _, _, server = name.rpartition("/")
    return _NOT_A_NAME.sub("-", server)[:_MAX_NAME_CHARS].strip("-") or "server"


def entry(source: Package | Remote, answer: Answer) -> dict[str, Any]:
    """Return an entry for a file of servers, which starts or reaches a server of a registry.

    `answer` asks the user for a value. Raises `BadInput` if a required value is missing.
    """
    if isinstance(source, Remote):
        return _remote_entry(source, answer)
    return _package_entry(source, answer)


class _Page(Struct):
    servers: tuple[msgspec.Raw, ...] | None = None
    metadata: dict[str, Any] = {}


class _Row(Struct):
    server: RegistryServer | None = None


def _server(raw: msgspec.Raw) -> RegistryServer:
    """Parse the description of one server. Raises `BadInput`."""
    content = bytes(raw)
    row: _Row = _decode(content, _Row)
    if row.server is not None:
        return row.server
    # Registries before v0.1 return the server itself, not an object with metadata.
    return _decode(content, RegistryServer)


def _decode(content: bytes, type_: Any) -> Any:
    """Parse JSON as this type. Raises `BadInput` if the content does not fit it."""
    try:
        return msgspec.json.decode(content, type=type_)
    except msgspec.MsgspecError as error:
        raise BadInput(f"the answer is not that of a registry: {error}") from error


def _remote_entry(remote: Remote, answer: Answer) -> dict[str, Any]:
    """Return an entry with an address, filled with the answers of the user.

    Raises `BadInput` if a placeholder of the address has no value.
    """
    url = _fill(_safe_text(remote.url), remote.variables, answer)
    if _SLOT_PATTERN.search(url):
        raise BadInput(f"the registry does not say what belongs into {url!r}")
    config: dict[str, Any] = {"type": _TRANSPORT_NAMES[remote.type], "url": url}
    if headers := _pairs(remote.headers or (), answer):
        config["headers"] = headers
    return config


def _package_entry(package: Package, answer: Answer) -> dict[str, Any]:
    """Return an entry that starts a package with npx, uvx or docker."""
    env = _pairs(package.environment_variables or (), answer)
    runtime = _arguments(package.runtime_arguments or (), answer)
    version, name = _safe_text(package.version), _safe_text(package.identifier)
    name_and_version = f"{name}@{version}" if version else name
    match package.registry_type:
        case "npm":
            yes = [] if "-y" in runtime else ["-y"]  # without it, npx asks
            words = ["npx", *yes, *runtime, name_and_version]
        case "pypi":
            words = ["uvx", *runtime, name_and_version]
        case _:  # a container image
            has_tag = ":" in name.rpartition("/")[2] or "@" in name
            image = name if has_tag or not version else f"{name}:{version}"
            options = [flag for flag in ("-i", "--rm") if flag not in runtime]
            for variable in env:
                options += ("-e", variable)
            words = ["docker", "run", *options, *_without_run(runtime), image]
    words += _arguments(package.package_arguments or (), answer)
    program, *arguments = words
    config: dict[str, Any] = {"command": program, "args": arguments}
    if env:
        config["env"] = env
    return config


def _without_run(words: Sequence[str]) -> Sequence[str]:
    """Return docker's arguments without "run" at the beginning, which some servers list."""
    return words[1:] if words[:1] == ["run"] else words


def _pairs(inputs: Iterable[Input], answer: Answer) -> dict[str, str]:
    """Return variables or headers with their values, without empty ones."""
    values = (
        (_safe_text(field.name), _value(field.name, field, answer)) for field in inputs
    )
    return {name: value for name, value in values if name and value}


def _arguments(inputs: Iterable[Input], answer: Answer) -> list[str]:
    """Return the words of the command line for these arguments.

    An option that takes a value is left out if the user gives no value. Raises `BadInput` if
    such an option is required.
    """
    words = list[str]()
    for field in inputs:
        label = _safe_text(field.name) or field.value_hint or "argument"
        if field.type != "named":
            if value := _value(label, field, answer):
                words.append(value)
            continue
        takes_value = field.value or field.value_hint or field.default is not None
        value = ""
        if takes_value or field.is_required:
            value = _value(label, field, answer)
            if not value and not field.is_required:
                continue
        words += [word for word in (field.name, value) if word]
    return words


def _value(label: str, field: Input, answer: Answer) -> str:
    """Return the fixed value of a field, or the user's answer, which may be "".

    Raises `BadInput` if a required value is missing.
    """
    if field.value:
        return _fill(_safe_text(field.value), field.variables, answer)
    _safe_text(str(field.default))  # raises an error if it is not safe
    value = answer(label, field)
    if not value and field.is_required:
        raise BadInput(f"it needs {label}, and no value was given")
    return value


def _safe_text(text: str) -> str:
    """Return the text unchanged.

    Raises `BadInput` if it contains "${": it would name a variable.
    """
    if "${" in text:
        raise BadInput(f"the registry has {text!r}, which names a variable of yours")
    return text


def _fill(text: str, variables: Mapping[str, Input] | None, answer: Answer) -> str:
    """Return the text with each variable in {braces} replaced, except unknown variables."""
    inputs = variables or {}

    def fill(match: re.Match[str]) -> str:
        """Return the value of the variable in the match; the match itself if it is unknown."""
        field = inputs.get(match[1])
        return _value(match[1], field, answer) if field else match[0]

    return _SLOT_PATTERN.sub(fill, text)
