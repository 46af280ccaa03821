"""Parses the head of one HTTP request that a command sends to its proxy. Pure.

Only one spelling of each part is accepted, because a request that two programs parse
differently could be judged as one host and sent to another. `filter` judges the host and
connects.
"""

import ipaddress
import re
from collections.abc import Sequence

from msgspec import Struct

from refold.values.web_address import WebAddress, web_address

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 200
_MAX_REASON_CHARS = 300  # of the error about an address
HEADERS_END = b"\r\n\r\n"
_REQUEST_LINE = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}) ([\x21-\x7e]+) HTTP/1\.([01])"
)
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_AUTHORITY_PATTERN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+):(\d{1,5})")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[0-9a-z_-]+(\.[0-9a-z_-]+)*")
_NUMERIC_HOST = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
# Headers for this connection and this proxy only; the server gets our own.
_NOT_FORWARDED = frozenset(
    (
        b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"te",
        b"trailer", b"upgrade", b"expect", b"host", b"proxy-authenticate", b"http2-settings",
    )
)  # fmt: skip


class ProxyRequest(Struct, frozen=True):
    """A request of a command to its proxy, for the server `place`.

    `tunnel` is true for CONNECT. For plain HTTP, `head` is what the server gets first, and
    `body` is the number of bytes that follow it.
    """

    place: WebAddress
    tunnel: bool
    head: bytes = b""
    body: int = 0


class Unreadable(ValueError):
    """A request that is refused because it cannot be parsed with certainty.

    `status` is the HTTP status of the refusal. The message says what is wrong.
    """

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


def proxy_request(head: bytes) -> ProxyRequest:
    """Parse the head of a request, given without the empty line at its end.

    Raises `Unreadable`.
    """
    lines = head.split(b"\r\n")
    # A server may see a line end in a single CR or LF, and so another request.
    if any(b"\n" in line or b"\r" in line for line in lines):
        raise Unreadable("a line of the request ends in an unusual way")
    first = _REQUEST_LINE.fullmatch(lines[0])
    if first is None:
        raise Unreadable("its first line cannot be read as HTTP/1.1")
    headers = _parse_headers(lines[1:])
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
    forwarded = [line for name, line in headers if name not in _NOT_FORWARDED]
    new_lines = (
        method + b" " + place.target.encode() + b" HTTP/1.1",
        b"Host: " + place.authority.encode(),
        *forwarded,
        b"Connection: close",
    )
    new_head = b"\r\n".join(new_lines) + HEADERS_END
    return ProxyRequest(place, tunnel=False, head=new_head, body=size)


def _parse_headers(lines: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return each header as a pair: its name in lower case, and its complete line."""
    if len(lines) > MAX_HEADERS:
        raise Unreadable(f"it has more than {MAX_HEADERS} headers", 431)
    headers = list[tuple[bytes, bytes]]()
    for line in lines:
        match = _HEADER_LINE.fullmatch(line)
        if match is None:
            raise Unreadable("a header of it cannot be read")
        name = match[1].lower()
        headers.append((name, line))
    return headers


def _parse_authority(target: str) -> WebAddress:
    """Parse the target of a CONNECT, which must be a host and a port."""
    match = _AUTHORITY_PATTERN.fullmatch(target)
    if not match or not 0 < int(match[2]) < 65536:
        raise Unreadable("CONNECT takes a host and a port, as example.org:443")
    return _parse_place(f"https://{target}/")


def _parse_absolute(target: str) -> WebAddress:
    """Parse the target of a request that is not a CONNECT. Raises `Unreadable`."""
    if not target.lower().startswith("http://"):
        raise Unreadable(
            "a proxy is asked for http://host/path, or with CONNECT for all other protocols"
        )
    return _parse_place(target)


def _parse_place(url: str) -> WebAddress:
    """Parse the address of a server. Raises `Unreadable` for an unusual spelling."""
    try:
        place = web_address(url)
        # Only one spelling of an address is accepted: programs parse 010.0.0.1 differently.
        if ":" in place.host or _NUMERIC_HOST.fullmatch(place.host):
            ipaddress.ip_address(place.host)
        elif not _HOST_NAME.fullmatch(place.host):
            raise ValueError("no host has such a name")
    except ValueError as error:
        reason = str(error).replace("\n", " ")
        raise Unreadable(reason[:_MAX_REASON_CHARS]) from error
    return place


def _check_host(headers: Sequence[tuple[bytes, bytes]], place: WebAddress) -> None:
    """Raise `Unreadable` if the Host header names another server than the first line.

    A server may use either of them. A request without a Host header is accepted.
    """
    named = [_header_value(line) for name, line in headers if name == b"host"]
    if len(named) > 1:
        raise Unreadable("it has more than one Host header")
    if not named:
        return
    host = _parse_place(f"{place.scheme}://{named[0]}/")
    # A colon in brackets belongs to an IPv6 address.
    _, _, after_brackets = named[0].rpartition("]")
    names_port = ":" in after_brackets
    if host.host != place.host or (names_port and host.port != place.port):
        raise Unreadable("its Host header names another host than its first line")


def _header_value(line: bytes) -> str:
    return line.partition(b":")[2].strip().decode("latin-1")


def _body_length(headers: Sequence[tuple[bytes, bytes]]) -> int:
    """Return the value of the Content-Length header; 0 without this header.

    Raises `Unreadable` for several of them and for a body in chunks, because either could hide
    a second request.
    """
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
