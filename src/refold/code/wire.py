"""The messages of the Language Server Protocol, as bytes and as values. Pure.

Only the parts that refold uses are described here: other fields of a message are ignored. A
server is another program, so its data is checked and limited. `language_server` sends and
receives.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import GenericAlias
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Raw, Struct

from refold.errors import ToolFailed

MAX_MESSAGE_BYTES = 32 * 1024 * 1024  # of one message
MAX_NAME_CHARS = 200  # the length of an id or a name
_MAX_MESSAGE_CHARS = 1_000  # the length of the text of a diagnostic
_MAX_HEADER_BYTES = 4096
_HEADER_END = b"\r\n\r\n"
_NULL_JSON = Raw(b"null")
_METHOD_NOT_FOUND = -32601
T = TypeVar("T")


class RpcError(Struct, frozen=True):
    """The error in a server's response."""

    code: int = 0
    message: str = ""


class RpcMessage(Struct, frozen=True):
    """A request (`id` and `method`), a notification (`method`) or a response (`id`)."""

    id: int | str | None = None
    method: str = ""
    params: Raw = _NULL_JSON
    result: Raw = _NULL_JSON
    error: RpcError | None = None


class Position(Struct, frozen=True):
    """A position in a file. Both numbers count from 0."""

    line: int
    character: int


class Range(Struct, frozen=True):
    start: Position
    end: Position


class Location(Struct, frozen=True, rename="camel"):
    """A `Location` or a `LocationLink` of the protocol. Some servers omit the range."""

    uri: str = ""
    range: Range | None = None
    target_uri: str = ""
    target_selection_range: Range | None = None

    @property
    def path(self) -> str:
        return path_of(self.uri or self.target_uri)

    @property
    def line(self) -> int:
        """The number of the line, from 1; 1 if the server has omitted the range."""
        span = self.range or self.target_selection_range
        return max(span.start.line, 0) + 1 if span else 1


class DocumentSymbol(Struct, frozen=True, rename="camel"):
    """A symbol of a file, with the symbols inside it."""

    name: str
    kind: int
    selection_range: Range
    children: tuple["DocumentSymbol", ...] | None = None


class SymbolInformation(Struct, frozen=True, rename="camel"):
    """A symbol that a server has found in the workspace."""

    name: str
    kind: int
    location: Location
    container_name: str | None = None


class Diagnostic(Struct, frozen=True):
    range: Range
    message: str
    severity: int | None = None
    code: int | str | None = None
    source: str | None = None


def shorten_all(diagnostics: Sequence[Diagnostic]) -> Sequence[Diagnostic]:
    """Return the diagnostics, with their texts shortened for storage."""
    return [_shorten(diagnostic) for diagnostic in diagnostics]


def _shorten(diagnostic: Diagnostic) -> Diagnostic:
    message, code = diagnostic.message[:_MAX_MESSAGE_CHARS], diagnostic.code
    if isinstance(code, str):
        code = code[:MAX_NAME_CHARS]
    return msgspec.structs.replace(diagnostic, message=message, code=code, source=None)


class Published(Struct, frozen=True):
    """The problems of a file that a server publishes without a request."""

    uri: str
    diagnostics: tuple[Diagnostic, ...]
    version: int | None = None


class Pulled(Struct, frozen=True):
    """The problems of a file that a server returns for a request."""

    items: tuple[Diagnostic, ...] = ()


class ProgressValue(Struct, frozen=True):
    kind: str = ""


class Progress(Struct, frozen=True):
    token: int | str
    value: ProgressValue = ProgressValue()


class ConfigurationItem(Struct, frozen=True):
    section: str = ""


class ConfigurationAsked(Struct, frozen=True):
    items: tuple[ConfigurationItem, ...] = ()


class Registration(Struct, frozen=True):
    method: str = ""


class RegisteredCapabilities(Struct, frozen=True):
    """Capabilities that a server registers after its start."""

    registrations: tuple[Registration, ...] = ()


class Capabilities(Struct, frozen=True, rename="camel"):
    """The capabilities of a server. `diagnostic_provider` may be false, null or an object."""

    diagnostic_provider: Raw = _NULL_JSON
    position_encoding: str = "utf-16"

    @property
    def offers_pulled_diagnostics(self) -> bool:
        return bytes(self.diagnostic_provider) not in (b"null", b"false")


class Initialized(Struct, frozen=True):
    capabilities: Capabilities = Capabilities()


class Frames:
    """Splits the bytes from a server, which arrive in pieces, into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()
        # The length of the next message; -1: its header has not been read yet.
        self._body_bytes = -1

    def feed(self, data: bytes) -> Iterable[RpcMessage]:
        """Add bytes, and yield the messages that are now complete.

        Raises `ToolFailed` for an invalid message, after which nothing more can be read.
        """
        self._rest += data
        while (body := self._next_body()) is not None:
            try:
                yield msgspec.json.decode(body, type=RpcMessage)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise _invalid_message(body) from error

    def _next_body(self) -> bytes | None:
        """Remove the next message from the bytes. Return None if it is not complete."""
        if self._body_bytes < 0 and not self._read_header():
            return None
        if len(self._rest) < self._body_bytes:
            return None
        body = bytes(self._rest[: self._body_bytes])
        del self._rest[: self._body_bytes]
        self._body_bytes = -1
        return body

    def _read_header(self) -> bool:
        """Read the header of a message. Return False if it has not arrived completely."""
        header_bytes = self._rest.find(_HEADER_END, 0, _MAX_HEADER_BYTES)
        if header_bytes < 0:
            if len(self._rest) >= _MAX_HEADER_BYTES:
                raise _invalid_message(self._rest)
            return False
        header = bytes(self._rest[:header_bytes])
        for row in header.split(b"\r\n"):
            name, _, value = row.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                self._body_bytes = int(value.strip()[:12])  # 12 digits are too many already
        if self._body_bytes < 0:
            raise _invalid_message(header)
        if self._body_bytes > MAX_MESSAGE_BYTES:
            raise ToolFailed(
                f"it sent a message longer than {MAX_MESSAGE_BYTES // 1024**2} MiB"
            )
        del self._rest[: header_bytes + len(_HEADER_END)]
        return True


def to_frame(message: object) -> bytes:
    body = msgspec.json.encode(message)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def request(id_: int, method: str, params: object) -> bytes:
    return to_frame({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def notification(method: str, params: object) -> bytes:
    return to_frame({"jsonrpc": "2.0", "method": method, "params": params})


def response(to: RpcMessage, result: object) -> bytes:
    return to_frame({"jsonrpc": "2.0", "id": to.id, "result": result})


def unknown_method(to: RpcMessage) -> bytes:
    method = to.method[:MAX_NAME_CHARS]
    error = {"code": _METHOD_NOT_FOUND, "message": f"refold has no {method}"}
    return to_frame({"jsonrpc": "2.0", "id": to.id, "error": error})


def read(raw: Raw, type_: type[T]) -> T:
    """Decode a value from a server. Raises `ToolFailed` if it is not valid."""
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ToolFailed(f"its answer does not match the protocol: {error}") from error


def read_all(raw: Raw, type_: type[T]) -> Sequence[T]:
    """Decode a list, one value or null as a sequence of values. Raises `ToolFailed`."""
    text = bytes(raw).lstrip()
    if text == b"null":
        return ()
    if text.startswith(b"{"):
        return (read(raw, type_),)
    tuple_type: Any = GenericAlias(tuple, (type_, ...))
    values: tuple[T, ...] = read(raw, tuple_type)
    return values


def uri_of(path: str) -> str:
    return Path(path).as_uri()


def path_of(uri: str) -> str:
    """Return the path in a URI, or "" if it is not the URI of a file."""
    if not uri.startswith("file:///"):
        return ""
    path = unquote_to_bytes(uri.removeprefix("file://"))
    return "" if b"\0" in path else os.fsdecode(path)


def column(text: str, index: int, encoding: str) -> int:
    """Return the column of the character at `index` of a line, in the units of an encoding."""
    match encoding:
        case "utf-32":
            return index
        case "utf-8":
            return len(text[:index].encode(errors="replace"))
        case _:
            return len(text[:index].encode("utf-16-le", errors="replace")) // 2


def _invalid_message(data: bytes | bytearray) -> ToolFailed:
    return ToolFailed(
        f"it sent data that is not a message of the protocol: {bytes(data[:60])!r}"
    )


# Our capabilities for a server. If it must not send a request, its capability is left out.
CLIENT_CAPABILITIES: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-32", "utf-16"]},
    "window": {"workDoneProgress": True},
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "didChangeWatchedFiles": {"dynamicRegistration": True},
        "symbol": {},
        "diagnostics": {"refreshSupport": True},
    },
    "textDocument": {
        "synchronization": {},
        "publishDiagnostics": {"versionSupport": True},
        "diagnostic": {"dynamicRegistration": True},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "definition": {},
        "references": {},
    },
}
