"""Which proxy a request goes through, and connections through it.

The variables are those of curl. A proxy resolves names itself, and may know other ones than
this machine, so it is the proxy that has to refuse addresses. `connect` opens connections
without one.

Every client uses this one reading of the variables: downloads, web tools and MCP transports
had different rules. Requests without TLS are sent to an HTTP proxy as whole URLs, because
most proxies open no tunnels for them.
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


def proxy_for(host: str, port: int, environ: Mapping[str, str], *, tls: bool) -> str:
    """The proxy the environment names for a place; "" to go there directly.

    Raises `SetupFault` for one that cannot be used.
    """
    if _is_exempt(host, port, _variable_value("no_proxy", environ)):
        return ""
    proxy = _variable_value("https_proxy" if tls else "http_proxy", environ)
    proxy = proxy or _variable_value("all_proxy", environ)
    return parse_proxy(proxy).geturl() if proxy else ""


def parse_proxy(proxy: str) -> SplitResult:
    """The parts of a proxy's address. Raises `SetupFault`."""
    parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    try:
        usable = parts.scheme in _DEFAULT_PORTS and parts.hostname and (parts.port or True)
    except ValueError:
        usable = False
    if not usable:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"  # without a password
        raise SetupFault(
            f"the proxy {shown!r} cannot be used: give an address that begins with http://, "
            "https:// or socks5://, in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
        )
    return parts


def proxy_port(parts: SplitResult) -> int:
    return parts.port or _DEFAULT_PORTS[parts.scheme]


def proxy_headers(parts: SplitResult) -> tuple[tuple[str, str], ...]:
    """The headers that authenticate a request at an HTTP proxy."""
    if not parts.username:
        return ()
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    code = base64.b64encode(user.encode()).decode()
    return (("proxy-authorization", f"Basic {code}"),)


async def open_tunnel(stream: ByteStream, parts: SplitResult, host: str, port: int) -> None:
    """Let the proxy, to which `stream` leads, connect it to a place. Raises `ProxyFault`."""
    opening = _open_socks if parts.scheme.startswith("socks") else _connect
    try:
        await opening(stream, parts, host, port)
    except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise ProxyFault(f"the proxy {parts.hostname} hung up") from error


async def _connect(stream: ByteStream, parts: SplitResult, host: str, port: int) -> None:
    """A tunnel of an HTTP proxy (RFC 9110, CONNECT)."""
    target = f"{f'[{host}]' if ':' in host else host}:{port}"
    headers = (("host", target), *proxy_headers(parts))
    lines = (f"CONNECT {target} HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "", "")
    await stream.send("\r\n".join(lines).encode())
    answer = b""
    # Not byte by byte: the other end sends nothing more before we do.
    while b"\r\n\r\n" not in answer and len(answer) < _MAX_HEAD_BYTES:
        answer += await stream.receive()
    status = answer.split(b"\r\n")[0].decode("latin-1")
    if status.split(" ")[1:2] == ["407"]:
        raise ProxyFault(
            f"the proxy {parts.hostname} wants a name and a password that it takes: give "
            "them in its address, as http://NAME:PASSWORD@HOST:PORT"
        )
    if status.split(" ")[1:2] != ["200"]:
        raise ProxyFault(f"the proxy {parts.hostname} answered {status!r}")


async def _open_socks(stream: ByteStream, parts: SplitResult, host: str, port: int) -> None:
    from socksio import exceptions, socks5

    protocol: Any = socks5.SOCKS5Connection()  # its methods have no types for callers
    user = unquote(parts.username or "").encode()
    password = unquote(parts.password or "").encode()
    method = socks5.SOCKS5AuthMethod
    ways = [method.USERNAME_PASSWORD] if user else [method.NO_AUTH_REQUIRED]

    async def answer(size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += await stream.receive(size - len(data))
        return data

    try:
        protocol.send(socks5.SOCKS5AuthMethodsRequest(ways))
        await stream.send(protocol.data_to_send())
        reply = protocol.receive_data(await answer(2))
        if not (isinstance(reply, socks5.SOCKS5AuthReply) and reply.method in ways):
            raise ProxyFault(f"the proxy {parts.hostname} wants another way to log in")
        if user:
            protocol.send(socks5.SOCKS5UsernamePasswordRequest(user, password))
            await stream.send(protocol.data_to_send())
            login = protocol.receive_data(await answer(2))
            if not (
                isinstance(login, socks5.SOCKS5UsernamePasswordReply) and login.success
            ):
                raise ProxyFault(f"the proxy {parts.hostname} refused the name or password")
        command = socks5.SOCKS5Command.CONNECT
        protocol.send(socks5.SOCKS5CommandRequest.from_address(command, (host, port)))
        await stream.send(protocol.data_to_send())
        head = await answer(5)
        remaining_bytes = {1: 3, 3: head[4], 4: 15}.get(head[3], 0) + 2
        opened = protocol.receive_data(head + await answer(remaining_bytes))
    except exceptions.SOCKSError as error:
        raise ProxyFault(f"the proxy {parts.hostname} does not speak SOCKS 5") from error
    if not isinstance(opened, socks5.SOCKS5Reply):
        raise ProxyFault(f"the proxy {parts.hostname} does not speak SOCKS 5")
    if opened.reply_code != socks5.SOCKS5ReplyCode.SUCCEEDED:
        reason = opened.reply_code.name.lower().replace("_", " ")
        raise ProxyFault(f"the proxy {parts.hostname} answered: {reason}")


def _variable_value(name: str, environ: Mapping[str, str]) -> str:
    """The value of a variable, in lower case or else in upper case."""
    if name in environ:
        return environ[name].strip()
    # A web server passes the header `Proxy` of a request to its programs as HTTP_PROXY.
    if name == "http_proxy" and "REQUEST_METHOD" in environ:
        return ""
    return environ.get(name.upper(), "").strip()


def _is_exempt(host: str, port: int, rules: str) -> bool:
    """Whether a rule covers the host: domain, address or network (with a port), or `*`."""
    for word in rules.replace(",", " ").split():
        if word == "*":
            return True
        rule, colon, number = word.rpartition(":")
        if not (colon and number.isdecimal() and (":" not in rule or rule.endswith("]"))):
            rule, number = word, ""
        if number and int(number) != port:
            continue
        rule = rule.strip("[]").removeprefix("*").lstrip(".").lower()
        if rule and f".{host}".lower().endswith(f".{rule}"):
            return True
        if rule and (rule[0].isdecimal() or ":" in rule) and _is_in_network(host, rule):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    import ipaddress  # takes time to load, and few users write one

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
