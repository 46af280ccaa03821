"""Servers as a registry of MCP servers describes them, and the entries of a file that they make. Pure.

A server comes as a package of npm or PyPI, as a container image, or is at an address; often there are
several ways, of which one is used. What only the user knows is asked for. A text of the registry that names a
variable of the user, as ${HOME}, is refused: its value would go to the server. `cli.mcp_registry` asks
the registry and the user.

Every account can publish in the public registry. So the value of a secret is never written:
the entry refers to a variable, and where that is set, only a yes at the terminal or `--env`
passes it on. A registry needs TLS, unless it is on this machine.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from refold.errors import BadInput

PUBLIC_REGISTRY = "https://registry.modelcontextprotocol.io"
PACKAGE_KINDS = ("npm", "pypi", "http", "sse", "oci")  # the first that a server has is used
_API_PATH = "v0.1/servers"
_SLOT_PATTERN = re.compile(r"\{([A-Za-z0-9_-]+)\}")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9]+")
_MAX_NAME_CHARS = 32
_TRANSPORT_NAMES = {"streamable-http": "http", "http": "http", "sse": "sse"}


class Input(Struct, frozen=True, rename="camel"):
    """A value that a server needs: a variable, a header, or an argument."""

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
    """An address at which a server is."""

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
        """Return the usable ways by kind, in the order of `PACKAGE_KINDS`."""
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


# Returns the value of an input, by the name that a person knows it by; "" for none.
Answer: TypeAlias = Callable[[str, Input], str]


def search_url(registry: str, words: str, limit: int) -> str:
    query = urlencode({"search": words, "version": "latest", "limit": limit})
    return f"{registry.rstrip('/')}/{_API_PATH}?{query}"


def server_url(registry: str, name: str) -> str:
    return f"{registry.rstrip('/')}/{_API_PATH}/{quote(name, safe='')}/versions/latest"


def parse_search(content: bytes) -> SearchResult:
    """Parse a search result; invalid servers are left out. Raises `BadInput`."""
    page = _decode(content, _Page)
    servers = list[RegistryServer]()
    for raw in page.servers or ():
        try:
            servers.append(_server(raw))
        except BadInput:
            continue
    return SearchResult(tuple(servers), bool(page.metadata.get("nextCursor")))


def parse_server(content: bytes) -> RegistryServer:
    """Parse one server. Raises `BadInput`."""
    return _server(msgspec.Raw(content))


def is_registry_name(name: str) -> bool:
    """Return True for a name like io.github.user/server."""
    space, slash, rest = name.partition("/")
    return bool(slash and rest and "." in space and "://" not in name) and "/" not in rest


def local_name(name: str) -> str:
    """Return the name of a server in a file, made of its name in a registry."""
    last = name.rpartition("/")[2]
    return _NOT_A_NAME.sub("-", last)[:_MAX_NAME_CHARS].strip("-") or "server"


def entry(source: Package | Remote, answer: Answer) -> dict[str, Any]:
    """Return the entry for a file. Raises `BadInput` if a value is missing."""
    return (
        _remote(source, answer) if isinstance(source, Remote) else _package(source, answer)
    )


class _Page(Struct):
    servers: tuple[msgspec.Raw, ...] | None = None
    metadata: dict[str, Any] = {}


class _Row(Struct):
    server: RegistryServer | None = None


def _server(raw: msgspec.Raw) -> RegistryServer:
    # Registries before v0.1 return the server itself, not an object with metadata.
    content = bytes(raw)
    return _decode(content, _Row).server or _decode(content, RegistryServer)


def _decode(content: bytes, type_: Any) -> Any:
    try:
        return msgspec.json.decode(content, type=type_)
    except msgspec.MsgspecError as error:
        raise BadInput(f"the answer is not that of a registry: {error}") from error


def _remote(remote: Remote, answer: Answer) -> dict[str, Any]:
    url = _fill(_refuse_variables(remote.url), remote.variables, answer)
    if _SLOT_PATTERN.search(url):
        raise BadInput(f"the registry does not say what belongs into {url!r}")
    config: dict[str, Any] = {"type": _TRANSPORT_NAMES[remote.type], "url": url}
    if headers := _pairs(remote.headers or (), answer):
        config["headers"] = headers
    return config


def _package(package: Package, answer: Answer) -> dict[str, Any]:
    env = _pairs(package.environment_variables or (), answer)
    runtime = _arguments(package.runtime_arguments or (), answer)
    version, name = (
        _refuse_variables(package.version),
        _refuse_variables(package.identifier),
    )
    match package.registry_type:
        case "npm":
            words = ["npx", *(["-y"] if "-y" not in runtime else []), *runtime]
            words.append(f"{name}@{version}" if version else name)
        case "pypi":
            words = ["uvx", *runtime, f"{name}@{version}" if version else name]
        case _:
            passed = [word for variable in env for word in ("-e", variable)]
            tagged = ":" in name.rpartition("/")[2] or "@" in name
            image = name if tagged or not version else f"{name}:{version}"
            fixed = [flag for flag in ("-i", "--rm") if flag not in runtime]
            words = ["docker", "run", *fixed, *passed, *_without_run(runtime), image]
    words += _arguments(package.package_arguments or (), answer)
    config: dict[str, Any] = {"command": words[0], "args": words[1:]}
    return {**config, "env": env} if env else config


def _without_run(words: Sequence[str]) -> Sequence[str]:
    return words[1:] if words[:1] == ["run"] else words


def _pairs(inputs: Iterable[Input], answer: Answer) -> dict[str, str]:
    values = (
        (_refuse_variables(field.name), _value(field.name, field, answer))
        for field in inputs
    )
    return {name: value for name, value in values if name and value}


def _arguments(inputs: Iterable[Input], answer: Answer) -> list[str]:
    words = list[str]()
    for field in inputs:
        label = _refuse_variables(field.name) or field.value_hint or "argument"
        if field.type == "named":
            has_value = field.value or field.value_hint or field.default is not None
            value = _value(label, field, answer) if has_value or field.is_required else ""
            if value or field.is_required or not has_value:
                words += filter(None, (field.name, value))
        elif value := _value(label, field, answer):
            words.append(value)
    return words


def _value(label: str, field: Input, answer: Answer) -> str:
    if field.value:
        return _fill(_refuse_variables(field.value), field.variables, answer)
    _refuse_variables(str(field.default))
    value = answer(label, field)
    if not value and field.is_required:
        raise BadInput(f"it needs {label}, and no value was given")
    return value


def _refuse_variables(text: str) -> str:
    """Raise `BadInput` if a text of a registry names a variable of the user."""
    if "${" in text:
        raise BadInput(f"the registry has {text!r}, which names a variable of yours")
    return text


def _fill(text: str, variables: Mapping[str, Input] | None, answer: Answer) -> str:
    """Replace the variables in {braces} by their values."""
    named = variables or {}

    def fill(match: re.Match[str]) -> str:
        wanted = named.get(match[1])
        return _value(match[1], wanted, answer) if wanted else match[0]

    return _SLOT_PATTERN.sub(fill, text)
