"""How the filter reads what a command asks of its proxy: the head of one HTTP request. Pure.

It accepts one form of everything and refuses the rest: a request that two programs parse differently
could be judged as one place and sent to another. `filter` judges and connects.
"""

import ipaddress
import re
from collections.abc import Sequence

from msgspec import Struct

from refold.values.web_address import WebAddress, web_address

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 200
HEADERS_END = b"\r\n\r\n"
_REQUEST_LINE = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}) ([\x21-\x7e]+) HTTP/1\.([01])"
)
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_AUTHORITY_PATTERN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+):(\d{1,5})")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[0-9a-z_-]+(\.[0-9a-z_-]+)*")
_NUMERIC_HOST = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
# Only for this connection and this proxy: the server gets our own headers.
_OF_ONE_HOP = frozenset(
    (
        b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"te",
        b"trailer", b"upgrade", b"expect", b"host", b"proxy-authenticate", b"http2-settings",
    )
)  # fmt: skip


class ProxyRequest(Struct, frozen=True):
    """What a command asks for. `head` is sent to the server first; a tunnel has none.

    `body` is the number of bytes that belong to the request after its head.
    """

    place: WebAddress
    tunnel: bool
    head: bytes = b""
    body: int = 0


class Unreadable(ValueError):
    """A request that is not passed on. `status` answers it, and the message has the reason."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


def proxy_request(head: bytes) -> ProxyRequest:
    """Read a head without its last empty line. Raises `Unreadable`."""
    lines = head.split(b"\r\n")
    if b"\n" in head.replace(b"\r\n", b"") or b"\r" in head.replace(b"\r\n", b""):
        raise Unreadable("a line of the request ends in an unusual way")
    first = _REQUEST_LINE.fullmatch(lines[0])
    if first is None:
        raise Unreadable("its first line cannot be read as HTTP/1.1")
    headers = _headers(lines[1:])
    method, target = first[1], first[2].decode("ascii")
    if method.upper() == b"CONNECT":
        place = _parse_authority(target)
        _check_host(headers, place)
        if _body_length(headers):
            raise Unreadable("a CONNECT has no body")
        return ProxyRequest(place, tunnel=True)
    place = _parse_absolute(target)
    _check_host(headers, place)
    size = _body_length(headers)
    passed_on = [line for name, line in headers if name not in _OF_ONE_HOP]
    written = (
        method + b" " + place.target.encode() + b" HTTP/1.1",
        b"Host: " + place.authority.encode(),
        *passed_on,
        b"Connection: close",
    )
    return ProxyRequest(place, False, b"\r\n".join(written) + HEADERS_END, size)


def _headers(lines: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Each header: its name in lower case, and its line."""
    if len(lines) > MAX_HEADERS:
        raise Unreadable(f"it has more than {MAX_HEADERS} headers", 431)
    read = list[tuple[bytes, bytes]]()
    for line in lines:
        if (header := _HEADER_LINE.fullmatch(line)) is None:
            raise Unreadable("a header of it cannot be read")
        read.append((header[1].lower(), line))
    return read


def _parse_authority(target: str) -> WebAddress:
    """The place that a CONNECT names: a host and a port, and nothing else."""
    match = _AUTHORITY_PATTERN.fullmatch(target)
    if not match or not 0 < int(match[2]) < 65536:
        raise Unreadable("CONNECT takes a host and a port, as example.org:443")
    return _parse_place(f"https://{target}/")


def _parse_absolute(target: str) -> WebAddress:
    if not target.lower().startswith("http://"):
        raise Unreadable(
            "a proxy is asked for http://host/path, or with CONNECT for all other protocols"
        )
    return _parse_place(target)


def _parse_place(url: str) -> WebAddress:
    try:
        place = web_address(url)
        # Only one spelling of an address is accepted: programs parse 010.0.0.1 differently.
        if ":" in place.host or _NUMERIC_HOST.fullmatch(place.host):
            ipaddress.ip_address(place.host)
        elif not _HOST_NAME.fullmatch(place.host):
            raise ValueError("no host has such a name")
    except ValueError as error:
        raise Unreadable(str(error).replace("\n", " ")[:300]) from error
    return place


def _check_host(headers: Sequence[tuple[bytes, bytes]], place: WebAddress) -> None:
    """Check that the Host header matches the first line: a server may use either."""
    named = [_header_value(line) for name, line in headers if name == b"host"]
    if len(named) > 1:
        raise Unreadable("it has more than one Host header")
    if not named:
        return
    host = _parse_place(f"{place.scheme}://{named[0]}/")
    if host.host != place.host or (host.port != place.port and b":" in _port_of(named[0])):
        raise Unreadable("its Host header names another host than its first line")


def _port_of(authority: str) -> bytes:
    return authority.rpartition("]")[2].encode()


def _header_value(line: bytes) -> str:
    return line.partition(b":")[2].strip().decode("latin-1")


def _body_length(headers: Sequence[tuple[bytes, bytes]]) -> int:
    """The length of the body. Refuse two lengths, or chunks, which could hide a second request."""
    if any(name == b"transfer-encoding" for name, _ in headers):
        raise Unreadable(
            "plain HTTP with a body in pieces (Transfer-Encoding) is not passed on: use https, "
            "or give the length of the body",
            411,
        )
    sizes = [_header_value(line) for name, line in headers if name == b"content-length"]
    if not sizes:
        return 0
    if len(sizes) > 1 or not re.fullmatch(r"[0-9]{1,15}", sizes[0]):
        raise Unreadable("the length of its body is not one number")
    return int(sizes[0])
