"""Chooses the proxy for a request, and connects through it.

The environment variables are those of curl. A proxy resolves names itself, and may know other
names than this machine, so only the proxy can refuse addresses. `connect` opens connections
without a proxy.

All clients use this module, so that downloads, web tools and MCP transports follow the same
rules. Requests without TLS are sent to an HTTP proxy with the complete URL, because most
proxies open no tunnels for them.
"""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import anyio
from anyio.abc import ByteStream

from refold.errors import ProxyFault, SetupFault

_DEFAULT_PORTS = {"http": 8080, "https": 443, "socks5": 1080, "socks5h": 1080}
_MAX_HEAD_BYTES = 65536
_PORT_BYTES = 2  # of a port in a message of SOCKS


def proxy_for(host: str, port: int, environ: Mapping[str, str], *, tls: bool) -> str:
    """Return the URL of the proxy for a host, or "" for a direct connection.

    Raises `SetupFault` if the proxy cannot be used.
    """
    if _is_exempt(host, port, _variable_value("no_proxy", environ)):
        return ""
    proxy = _variable_value("https_proxy" if tls else "http_proxy", environ)
    proxy = proxy or _variable_value("all_proxy", environ)
    return parse_proxy(proxy).geturl() if proxy else ""


def parse_proxy(proxy: str) -> SplitResult:
    """Parse the URL of a proxy. Raises `SetupFault` if it is invalid."""
    parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    try:
        _ = parts.port  # raises `ValueError` if it is invalid
        usable = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        # the address without a password
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        raise SetupFault(
            f"the proxy {shown!r} cannot be used: give an address that begins with http://, "
            "https:// or socks5://, in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
        )
    return parts


def proxy_port(parts: SplitResult) -> int:
    return parts.port or _DEFAULT_PORTS[parts.scheme]


def proxy_headers(parts: SplitResult) -> tuple[tuple[str, str], ...]:
    """Return the headers that authenticate a request at an HTTP proxy, or ()."""
    if not parts.username:
        return ()
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    code = base64.b64encode(user.encode()).decode()
    return (("proxy-authorization", f"Basic {code}"),)


async def open_tunnel(stream: ByteStream, parts: SplitResult, host: str, port: int) -> None:
    """Ask the proxy to which `stream` leads to connect to a host. Raises `ProxyFault`."""
    negotiate = _open_socks if parts.scheme.startswith("socks") else _open_http
    try:
        await negotiate(stream, parts, host, port)
    except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise ProxyFault(f"the proxy {parts.hostname} hung up") from error


async def _open_http(stream: ByteStream, parts: SplitResult, host: str, port: int) -> None:
    """Ask an HTTP proxy for a tunnel to a host (RFC 9110, CONNECT)."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    headers = (("host", target), *proxy_headers(parts))
    lines = (f"CONNECT {target} HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "", "")
    await stream.send("\r\n".join(lines).encode())
    answer = b""
    # Reading large pieces is safe, because the other end sends nothing more before we do.
    while b"\r\n\r\n" not in answer and len(answer) < _MAX_HEAD_BYTES:
        answer += await stream.receive()
    status_line = answer.split(b"\r\n")[0].decode("latin-1")
    _, _, status_and_reason = status_line.partition(" ")
    status, _, _ = status_and_reason.partition(" ")
    if status == "407":
        raise ProxyFault(
            f"the proxy {parts.hostname} wants a name and a password that it takes: give "
            "them in its address, as http://NAME:PASSWORD@HOST:PORT"
        )
    if status != "200":
        raise ProxyFault(f"the proxy {parts.hostname} answered {status_line!r}")


async def _open_socks(stream: ByteStream, parts: SplitResult, host: str, port: int) -> None:
    """Log in to a SOCKS 5 proxy, and ask it to connect to a host (RFC 1928)."""
    from socksio import exceptions, socks5

    # its methods have no type annotations for callers
    protocol: Any = socks5.SOCKS5Connection()
    user = unquote(parts.username or "").encode()
    password = unquote(parts.password or "").encode()
    method = socks5.SOCKS5AuthMethod
    methods = [method.USERNAME_PASSWORD] if user else [method.NO_AUTH_REQUIRED]

    async def receive(size: int) -> bytes:
        """Return exactly `size` bytes."""
        data = b""
        while len(data) < size:
            data += await stream.receive(size - len(data))
        return data

    try:
        protocol.send(socks5.SOCKS5AuthMethodsRequest(methods))
        await stream.send(protocol.data_to_send())
        reply = protocol.receive_data(await receive(2))
        if not (isinstance(reply, socks5.SOCKS5AuthReply) and reply.method in methods):
            raise ProxyFault(f"the proxy {parts.hostname} wants another way to log in")
        if user:
            protocol.send(socks5.SOCKS5UsernamePasswordRequest(user, password))
            await stream.send(protocol.data_to_send())
            login = protocol.receive_data(await receive(2))
            if not (
                isinstance(login, socks5.SOCKS5UsernamePasswordReply) and login.success
            ):
                raise ProxyFault(f"the proxy {parts.hostname} refused the name or password")
        command = socks5.SOCKS5Command.CONNECT
        protocol.send(socks5.SOCKS5CommandRequest.from_address(command, (host, port)))
        await stream.send(protocol.data_to_send())
        head = await receive(5)  # with the first byte of the address
        address_type, first_byte = head[3], head[4]
        # Of an IPv4 address (type 1) 3 bytes are left, of an IPv6 address (type 4) 15. A name
        # (type 3) begins with its length.
        address_bytes_left = {1: 3, 3: first_byte, 4: 15}.get(address_type, 0)
        rest = await receive(address_bytes_left + _PORT_BYTES)
        opened = protocol.receive_data(head + rest)
    except exceptions.SOCKSError as error:
        raise ProxyFault(f"the proxy {parts.hostname} does not speak SOCKS 5") from error
    if not isinstance(opened, socks5.SOCKS5Reply):
        raise ProxyFault(f"the proxy {parts.hostname} does not speak SOCKS 5")
    if opened.reply_code != socks5.SOCKS5ReplyCode.SUCCEEDED:
        reason = opened.reply_code.name.lower().replace("_", " ")
        raise ProxyFault(f"the proxy {parts.hostname} answered: {reason}")


def _variable_value(name: str, environ: Mapping[str, str]) -> str:
    """Return the value of the variable `name`, or else of the one with the upper-case name.

    Return "" if neither is set.
    """
    if name in environ:
        return environ[name].strip()
    # A web server passes the request header `Proxy` to its programs as HTTP_PROXY.
    if name == "http_proxy" and "REQUEST_METHOD" in environ:
        return ""
    return environ.get(name.upper(), "").strip()


def _is_exempt(host: str, port: int, rules: str) -> bool:
    """Whether one of the rules in `no_proxy` covers a host and port.

    A rule is `*`, or a domain, address or network, which may have a port.
    """
    for word in rules.replace(",", " ").split():
        if word == "*":
            return True
        before_colon, colon, number = word.rpartition(":")
        # Without brackets, the last part of an IPv6 address is not a port.
        may_have_port = ":" not in before_colon or before_colon.endswith("]")
        has_port = bool(colon) and number.isdecimal() and may_have_port
        if has_port and int(number) != port:
            continue
        host_rule = before_colon if has_port else word
        rule = host_rule.strip("[]").removeprefix("*").lstrip(".").lower()
        if not rule:
            continue
        if f".{host}".lower().endswith(f".{rule}"):
            return True
        may_be_network = rule[0].isdecimal() or ":" in rule
        if may_be_network and _is_in_network(host, rule):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    """Whether an address is in a network. False if either is not a valid one."""
    import ipaddress  # the import takes time, and few users write a network

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
