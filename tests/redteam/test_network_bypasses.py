"""Ways to make the filter of named hosts connect somewhere else. None works."""

from collections.abc import Iterator

import pytest

from refold.values.hosts import ReachableHosts, expand_all
from tests.network.filtered import Filtered, LoopbackServer, run_filtered

NAMES = {
    "site.example": ["127.0.0.1"],
    "loops.example": ["127.0.0.1"],
    "private.example": ["10.1.2.3"],
    "cloud.example": ["169.254.169.254"],
    "six.example": ["::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "nat.example": ["64:ff9b::7f00:1"],
    "ec2.example": ["fd00:ec2::254"],
    "unspecified.example": ["0.0.0.0"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
}
# Hosts that a rule names, as public ones: their owner decides where they lead.
_NAMED_INSIDE = ("site.example", "metadata.google.internal")
PUBLIC = [name for name in NAMES if name not in _NAMED_INSIDE]


@pytest.fixture
def filtered(
    allowed_server: LoopbackServer, internal_server: LoopbackServer
) -> Iterator[Filtered]:
    allowed = [f"private:site.example:{allowed_server.port}"]
    allowed += [
        f"{name}:{internal_server.port}" for name in (*PUBLIC, "metadata.google.internal")
    ]
    hosts = ReachableHosts(expand_all(allowed), expand_all(["denied.site.example"]))
    with run_filtered(hosts, NAMES) as served:
        yield served


def connect(target: str, host: str = "") -> bytes:
    more = f"Host: {host}\r\n" if host else ""
    return f"CONNECT {target} HTTP/1.1\r\n{more}\r\n".encode()


def test_a_named_host_is_reached_by_a_tunnel_and_by_plain_http(
    filtered: Filtered, allowed_server: LoopbackServer
) -> None:
    get = f"GET http://SITE.example:{allowed_server.port}/a?b=c HTTP/1.1\r\nX-Mine: 1\r\n\r\n".encode()
    inner = b"GET / HTTP/1.1\r\n\r\n"

    assert filtered.ask(get).endswith(b"good\n")
    assert filtered.ask(connect(f"site.example:{allowed_server.port}"), inner).endswith(
        b"good\n"
    )
    host = f"Host: site.example:{allowed_server.port}".encode()
    assert allowed_server.received == [
        b"GET /a?b=c HTTP/1.1\r\n" + host + b"\r\nX-Mine: 1\r\nConnection: close\r\n\r\n", inner,
    ]  # fmt: skip
    (attempt,) = filtered.attempts()
    assert (attempt.host, attempt.port, attempt.times) == (
        "site.example",
        allowed_server.port,
        2,
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_that_resolves_to_a_private_address_is_refused(
    filtered: Filtered, internal_server: LoopbackServer, name: str
) -> None:
    assert filtered.status(connect(f"{name}:{internal_server.port}")) == 403
    assert (
        filtered.status(
            f"GET http://{name}:{internal_server.port}/ HTTP/1.1\r\n\r\n".encode()
        )
        == 403
    )
    assert not internal_server.received
    (attempt,) = filtered.attempts()
    assert (attempt.host, attempt.port, attempt.times) == (name, internal_server.port, 2)
    assert attempt.refused
    # A rule that names the host as a private one would permit these.
    inside_only = name in (
        "loops.example",
        "private.example",
        "six.example",
        "mapped.example",
    )
    assert attempt.kind == ("private" if inside_only else "never")


def test_a_metadata_service_is_refused_even_by_a_rule_for_its_name(
    filtered: Filtered, internal_server: LoopbackServer
) -> None:
    assert (
        filtered.status(connect(f"metadata.google.internal:{internal_server.port}")) == 403
    )


# {0}: the port of the service inside, {1}: that of the named host.
CONNECTS = {
    "an address": "127.0.0.1:{0}",
    "an IPv6 address": "[::1]:{0}",
    "an IPv4 address in IPv6": "[::ffff:127.0.0.1]:{0}",
    "the same in hexadecimal": "[::ffff:7f00:1]:{0}",
    "one number": "2130706433:{0}",
    "octal": "0177.0.0.1:{0}",
    "hexadecimal": "0x7f.1:{0}",
    "a short form": "127.1:{0}",
    "the unspecified address": "0.0.0.0:{0}",
    "an empty host": ":{0}",
    "metadata by address": "169.254.169.254:80",
    "metadata by name": "metadata.google.internal:80",
    "another port of a named host": "site.example:22",
    "port 0": "site.example:0",
    "a port beyond all": "site.example:65537",
    "a port that wraps around": "site.example:{0}4294967296",
    "no port": "site.example",
    "two ports": "site.example:{1}:{0}",
    "a user name": "site.example@127.0.0.1:{0}",
    "a user name with a colon": "site.example:{1}@localhost:{0}",
    "a name below in front": "site.example.evil.example:{1}",
    "a name that ends alike": "evilsite.example:{1}",
    "a denied name below": "denied.site.example:{1}",
    "localhost": "localhost:{0}",
    "localhost with a dot": "localhost.:{0}",
    "a name below localhost": "x.localhost:{0}",
    "percent encoding": "%6cocalhost:{0}",
    "a path": "site.example:{1}/../@localhost:{0}",
    "a zone": "[fe80::1%25lo]:{0}",
    "a fragment": "localhost:{0}#site.example:{1}",
    "a NUL": "localhost:{0}\0site.example:{1}",
    "a tab": "localhost:{0}\tsite.example:{1}",
    "full-width digits": "１２７.0.0.1:{0}",
    "letters that look alike": "sіte.example:{1}",
    "the same as IDN": "xn--ste-wlc.example:{1}",
}


@pytest.mark.parametrize("target", CONNECTS.values(), ids=CONNECTS)
def test_a_tunnel_to_an_unnamed_target_is_refused(
    filtered: Filtered,
    allowed_server: LoopbackServer,
    internal_server: LoopbackServer,
    target: str,
) -> None:
    connection = connect(target.format(internal_server.port, allowed_server.port))

    assert filtered.status(connection, b"GET / HTTP/1.1\r\n\r\n") in (400, 403)
    assert not internal_server.received
    assert not allowed_server.received


# Whatever is served of these, only the named host is, and only one request.
REQUESTS = {
    "a Host header of another": "GET http://site.example:{1}/ HTTP/1.1\r\nHost: localhost:{0}\r\n\r\n",
    "another port in the Host header": "GET http://site.example:{1}/ HTTP/1.1\r\nHost: site.example:{0}\r\n\r\n",
    "two Host headers": "GET http://site.example:{1}/ HTTP/1.1\r\nHost: site.example:{1}\r\nHost: localhost\r\n\r\n",
    "a tunnel with another Host header": "CONNECT site.example:{1} HTTP/1.1\r\nHost: localhost:{0}\r\n\r\n",
    "no address": "GET / HTTP/1.1\r\nHost: localhost:{0}\r\n\r\n",
    "an address of another": "GET http://localhost:{0}/ HTTP/1.1\r\nHost: site.example:{1}\r\n\r\n",
    "a user name": "GET http://site.example:{1}@localhost:{0}/ HTTP/1.1\r\n\r\n",
    "a backslash": "GET http://localhost:{0}\\@site.example:{1}/ HTTP/1.1\r\n\r\n",
    "another scheme": "GET https://site.example:{1}/ HTTP/1.1\r\n\r\n",
    "a file": "GET file:///etc/passwd HTTP/1.1\r\n\r\n",
    "a socket": "GET http+unix://%2Fvar%2Frun%2Fdocker.sock/ HTTP/1.1\r\n\r\n",
    "a bare line end": "GET http://site.example:{1}/ HTTP/1.1\nHost: localhost:{0}\r\n\r\n",
    "a bare return": "GET http://site.example:{1}/ HTTP/1.1\rX: y\r\n\r\n",
    "a line end in a header": "GET http://site.example:{1}/ HTTP/1.1\r\nX: y\nHost: localhost\r\n\r\n",
    "a header on two lines": "GET http://site.example:{1}/ HTTP/1.1\r\nX: y\r\n z\r\n\r\n",
    "a blank before the colon": "GET http://site.example:{1}/ HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "two lengths": "POST http://site.example:{1}/ HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
    "a length with a sign": "POST http://site.example:{1}/ HTTP/1.1\r\nContent-Length: +5\r\n\r\nhello",
    "pieces and a length": "POST http://site.example:{1}/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "pieces": "POST http://site.example:{1}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a tunnel with a body": "CONNECT site.example:{1} HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "an old version": "GET http://site.example:{1}/\r\n\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SOCKS 5": "\x05\x01\x00\r\n\r\n",
    "a blank in the target": "GET http://site.example:{1}/ x HTTP/1.1 HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("request_text", REQUESTS.values(), ids=REQUESTS)
def test_an_ambiguous_http_request_is_refused(
    filtered: Filtered,
    allowed_server: LoopbackServer,
    internal_server: LoopbackServer,
    request_text: str,
) -> None:
    data = request_text.format(internal_server.port, allowed_server.port).encode("latin-1")

    assert filtered.status(data) in (400, 403, 411)
    assert not internal_server.received
    assert not allowed_server.received


@pytest.mark.parametrize("at_once", [True, False])
def test_a_second_request_on_a_connection_is_not_forwarded(
    filtered: Filtered,
    allowed_server: LoopbackServer,
    internal_server: LoopbackServer,
    *,
    at_once: bool,
) -> None:
    first = f"GET http://site.example:{allowed_server.port}/ HTTP/1.1\r\nConnection: keep-alive\r\n\r\n"
    second = (
        f"GET http://localhost:{internal_server.port}/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    pieces = [(first + second).encode()] if at_once else [first.encode(), second.encode()]

    assert filtered.ask(*pieces).count(b"HTTP/1.1 200") == 1
    assert len(allowed_server.received) == 1
    assert b"localhost" not in allowed_server.received[0]
    assert not internal_server.received


def test_a_request_hidden_behind_a_body_is_not_forwarded(
    filtered: Filtered, allowed_server: LoopbackServer
) -> None:
    head = f"POST http://site.example:{allowed_server.port}/ HTTP/1.1\r\nContent-Length: 5\r\n\r\n"
    hidden = b"GET /admin HTTP/1.1\r\nHost: other.example\r\n\r\n"

    filtered.ask(head.encode() + b"hello" + hidden)

    assert allowed_server.received[0].endswith(b"\r\n\r\nhello")


def test_a_host_is_connected_at_its_first_resolved_address(
    allowed_server: LoopbackServer, internal_server: LoopbackServer
) -> None:
    """The name is resolved once, so the judged address is the one that is connected to."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    class Changing(dict[str, list[str]]):
        def __getitem__(self, name: str) -> list[str]:
            return answers.pop(0)

    hosts = ReachableHosts((f"private:turns.example:{allowed_server.port}",))
    with run_filtered(hosts, Changing({"turns.example": []})) as door:
        assert (
            door.status(
                connect(f"turns.example:{allowed_server.port}"), b"GET / HTTP/1.1\r\n\r\n"
            )
            == 200
        )
    assert len(allowed_server.received) == 1
    assert answers == [["127.0.0.2"]]


def test_proxy_headers_are_not_forwarded_to_the_server(
    filtered: Filtered, allowed_server: LoopbackServer
) -> None:
    words = "Proxy-Authorization: Basic c2VjcmV0\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
    filtered.ask(
        f"GET http://site.example:{allowed_server.port}/ HTTP/1.1\r\n{words}\r\n".encode()
    )

    assert b"c2VjcmV0" not in allowed_server.received[0]
    assert b"h2c" not in allowed_server.received[0]


def test_every_public_host_does_not_include_loopback_addresses(
    internal_server: LoopbackServer,
) -> None:
    with run_filtered(ReachableHosts(("*:*",)), NAMES) as door:
        for host in ("127.0.0.1", "localhost", "2130706433", "loops.example", "[::1]"):
            assert door.status(connect(f"{host}:{internal_server.port}")) in (400, 403)
    assert not internal_server.received
