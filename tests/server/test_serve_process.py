"""`refold serve` as a process: where it listens, what its keys open, and how it ends."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from refold.client.stored_sessions import StoredSessions
from refold.journal.journal_directory import JournalDirectory
from refold.server.access import load_access

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
OPENSSL = shutil.which("openssl") or ""
JSON = {"Content-Type": "application/json"}
Headers = dict[str, str]


def home() -> Path:
    return Path(os.environ["REFOLD_HOME"])


def command_words(directory: Path, *flags: str) -> list[str]:
    script = directory / "answers.jsonl"
    if not script.exists():
        script.write_text('{"text": "Hello."}\n')
    return [sys.executable, "-m", "refold", "serve", "--port", "0", "--script", str(script), *flags]  # fmt: skip


class Served:
    """A listening server. `links` lead to the two pages."""

    def __init__(self, directory: Path, *flags: str, scripted: bool = True) -> None:
        serve = [sys.executable, "-m", "refold", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            command_words(directory, *flags) if scripted else serve, cwd=directory,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.links = [self.process.stdout.readline().split()[-1] for _ in range(2)]
        match = re.match(r"(https?)://(.+):(\d+)/#launch=(.+)", self.links[0])
        assert match, self.links
        self.scheme, self.name, self.port = match[1], match[2], int(match[3])
        self.launch = match[4]

    @property
    def bearer(self) -> Headers:
        return {"Authorization": f"Bearer {load_access(home() / 'server.key').bearer}"}

    def ask(
        self,
        method: str,
        path: str,
        headers: Headers,
        body: object = None,
        *,
        tls: Any = None,
    ) -> tuple[int, Headers, bytes]:
        name = self.name.strip("[]")
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(name, self.port, timeout=60, context=tls)
            if tls
            else http.client.HTTPConnection(name, self.port, timeout=60)
        )
        data = None if body is None else json.dumps(body).encode()
        with closing(connection):
            connection.request(method, path, data, {**(JSON if data else {}), **headers})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def cookie(self) -> Headers:
        """Return what a browser has after it opened the link."""
        origin = {"Origin": f"{self.scheme}://{self.name}:{self.port}"}
        status, headers, _ = self.ask("POST", "/api/login", origin, {"launch": self.launch})
        assert status == 204
        return {"Cookie": headers["set-cookie"].partition(";")[0]}

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        out, error = self.process.communicate(timeout=60)
        return self.process.returncode, out + error


Start = Callable[..., Served]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    serveds = list[Served]()

    def start_server(*flags: str) -> Served:
        serveds.append(Served(tmp_path, *flags))
        return serveds[-1]

    yield start_server
    for item in serveds:
        item.process.kill()
        item.process.communicate()


def read_refusal(directory: Path, *flags: str) -> tuple[int, str]:
    done = subprocess.run(
        command_words(directory, *flags), cwd=directory, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


def listens_on(port: int) -> set[str]:
    """Return the local addresses on which something listens, by the kernel's own list."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {
        r[1].split(":")[0] for r in rows if r[3] == "0A" and r[1].endswith(f":{port:04X}")
    }


def test_serve_listens_only_on_loopback_by_default_with_a_long_token(start: Start) -> None:
    served = start()

    assert listens_on(served.port) == {"0100007F"}
    assert len(served.launch) >= 40  # 240 bits
    assert len(load_access(home() / "server.key").bearer) == 64


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--host", "0.0.0.0"), "give --tls-cert and --tls-key, or, in a network that you trust, --plain-http"),
        (("--host", "::"), "--host :: is reached from other machines"),
        (("--tls-cert", "cert.pem"), "--tls-cert and --tls-key go together: give both files"),
        (("--tls-cert", "no.pem", "--tls-key", "no.pem"), "the certificate no.pem or its key no.pem cannot be used"),
    ],
)  # fmt: skip
def test_serve_refuses_plain_http_on_a_network_address(
    tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    code, error = read_refusal(tmp_path, *more)

    assert code != 0
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(("size", "mode"), [(0, 0o600), (31, 0o600), (32, 0o644)])
def test_serve_refuses_an_invalid_key_file(tmp_path: Path, size: int, mode: int) -> None:
    key = home() / "server.key"
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_bytes(b"k" * size)
    key.chmod(mode)

    code, error = read_refusal(tmp_path)

    assert code != 0
    assert "server.key" in error
    assert "delete it, and start again" in error


def test_serve_with_plain_http_and_a_name_listens_on_all_addresses(start: Start) -> None:
    served = start("--host", "0.0.0.0", "--plain-http", "--name", "127.0.0.1")

    assert listens_on(served.port) == {"00000000"}
    assert served.ask("GET", "/api/health", served.bearer)[0] == 200
    rebound = {**served.bearer, "Host": f"evil.example:{served.port}"}
    assert served.ask("GET", "/api/health", rebound)[0] == 421


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_serve_listens_on_ipv6(start: Start) -> None:
    served = start("--host", "::1")

    assert served.name == "[::1]"
    assert served.ask("GET", "/api/health", served.bearer)[0] == 200


@pytest.mark.peer
@pytest.mark.skipif(not OPENSSL, reason="openssl is not installed")
def test_serve_with_a_certificate_uses_tls_for_http_and_websockets(
    start: Start, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    served = start("--tls-cert", str(certificate), "--tls-key", str(key))
    tls = ssl.create_default_context(cafile=str(certificate))

    origin = {"Origin": f"https://127.0.0.1:{served.port}"}
    status, headers, _ = served.ask(
        "POST", "/api/login", origin, {"launch": served.launch}, tls=tls
    )
    data = served.ask("POST", "/api/conversations", served.bearer, {}, tls=tls)[2]
    id_ = json.loads(data)["id"]
    address = f"wss://127.0.0.1:{served.port}/api/conversations/{id_}/ws"
    with connect(address, ssl=tls, additional_headers=served.bearer) as follower:
        first = json.loads(follower.recv())

    assert served.scheme == "https"
    assert status == 204
    assert "Secure" in headers["set-cookie"]
    assert first["type"] == "snapshot"
    with pytest.raises((http.client.HTTPException, OSError)):
        served.ask("GET", "/api/health", served.bearer)


@pytest.mark.parametrize(
    ("more", "outcome"), [((), "interrupted"), (("--drain",), "answered")]
)
def test_at_shutdown_a_turn_is_interrupted_or_with_drain_finished(
    start: Start, tmp_path: Path, more: tuple[str, ...], outcome: str
) -> None:
    text = " ".join(f"word{n}" for n in range(30))
    script = json.dumps({"text": text, "pause": 0.05})
    (tmp_path / "answers.jsonl").write_text(f"{script}\n")
    served = start(*more)
    data = served.ask("POST", "/api/conversations", served.bearer, {})[2]
    id_ = json.loads(data)["id"]
    address = f"ws://127.0.0.1:{served.port}/api/conversations/{id_}/ws"
    with connect(address, additional_headers=served.bearer) as follower:
        follower.send('{"type": "user_message", "text": "Go."}')
        while json.loads(follower.recv())["type"] != "text_delta":
            pass
        code, _ = served.end()

    stored = StoredSessions(JournalDirectory(home() / "sessions"))
    from refold.client.event_documents import FEED_START

    ended = [json.loads(event) for event in stored.events(id_, FEED_START, 1000)]
    results = [item for item in ended if item["type"] == "result"]
    assert code == 0
    assert [result["outcome"] for result in results] == [outcome]
    assert (results[0]["text"] == text) is bool(more)


def test_server_keys_stay_valid_over_a_restart_until_they_are_renewed(start: Start) -> None:
    first = start()
    bearer, cookie = first.bearer, first.cookie()
    first.end()
    again = start()
    numbers = [again.ask("GET", "/api/conversations", h)[0] for h in (bearer, cookie)]
    again.end()
    renewed = start("--new-keys")

    assert numbers == [200, 200]
    assert [renewed.ask("GET", "/api/conversations", h)[0] for h in (bearer, cookie)] == [401, 401]  # fmt: skip
    assert renewed.ask("GET", "/api/conversations", renewed.bearer)[0] == 200


def test_every_address_refuses_requests_without_a_token(start: Start) -> None:
    served = start()
    created = served.ask(
        "POST", "/api/conversations", served.bearer, {"name": "Secret plans"}
    )
    id_ = json.loads(created[2])["id"]
    described = json.loads(served.ask("GET", "/openapi.json", served.bearer)[2])["paths"]
    addresses = [
        (method.upper(), re.sub(r"\{\w+\}", "1", path.replace("{id_}", id_)))
        for path, methods in described.items()
        for method in methods
    ]
    addresses += [
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
        ("GET", "/redoc"),
        ("GET", "/"),
    ]

    answers = {
        address: served.ask(
            *address, {}, {} if address[0] in ("POST", "PUT", "PATCH") else None
        )
        for address in addresses
        if address != ("POST", "/api/login")
    }
    with pytest.raises(InvalidStatus) as socket_refused:
        connect(f"ws://127.0.0.1:{served.port}/api/conversations/{id_}/ws")

    assert len(answers) > 30
    assert {status for status, _, _ in answers.values()} == {401}
    assert [body for _, _, body in answers.values() if b"Secret" in body or id_.encode() in body] == []  # fmt: skip
    assert socket_refused.value.response.status_code == 401


def test_cross_site_simple_requests_change_nothing(start: Start) -> None:
    served = start()
    cookie, own = served.cookie(), {"Origin": f"http://127.0.0.1:{served.port}"}
    result = served.ask("POST", "/api/conversations", {**cookie, **own}, {"name": "kept"})
    address = f"/api/conversations/{json.loads(result[2])['id']}"
    evil = {**cookie, "Origin": "https://evil.example"}
    form = {"Content-Type": "multipart/form-data; boundary=x"}

    statuses = [
        served.ask("POST", "/api/conversations", {**evil, "Content-Type": "text/plain"}, {"title": "x"})[0],
        served.ask("POST", f"{address}/files/a", {**evil, **form}, {})[0],
        served.ask("POST", address, {**cookie, "Sec-Fetch-Site": "cross-site"}, {})[0],
        served.ask("GET", f"{address}/delete", cookie)[0],
        served.ask("POST", address, {**cookie, **own, "X-HTTP-Method-Override": "DELETE"}, {})[0],
        served.ask("DELETE", address, evil)[0],
    ]  # fmt: skip

    assert statuses == [403, 403, 403, 404, 405, 403]
    rows = json.loads(served.ask("GET", "/api/conversations", cookie)[2])
    assert [row["name"] for row in rows] == ["kept"]


def test_server_keys_do_not_appear_in_output_or_logs(start: Start, tmp_path: Path) -> None:
    served = start()
    cookie = served.cookie()["Cookie"].partition("=")[2]
    served.ask("GET", f"/?token={served.launch}", {"Cookie": f"x={cookie}"})
    served.ask("POST", "/api/login", {}, {"launch": served.launch})
    bearer = served.bearer["Authorization"].partition(" ")[2]
    _, text = served.end()

    files = [path for path in home().rglob("*") if path.is_file()]
    kept_in = [
        str(file)
        for file in files
        for secret in (cookie, bearer, served.launch)
        if secret.encode() in file.read_bytes()
    ]
    assert kept_in == []
    assert [secret for secret in (cookie, bearer, served.launch) if secret in text] == []


def test_a_thousand_clients_all_receive_a_document(start: Start) -> None:
    count = 1000
    served = start()
    created = served.ask("POST", "/api/conversations", served.bearer, {})[2]
    address = f"/api/conversations/{json.loads(created)['id']}/ws"
    greeting = (
        f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: {served.bearer['Authorization']}\r\n\r\n"
    ).encode()
    there = list[socket.socket]()
    try:
        for _ in range(count):
            there.append(socket.create_connection(("127.0.0.1", served.port), timeout=60))
            there[-1].sendall(greeting)
        with connect(
            f"ws://127.0.0.1:{served.port}{address}", additional_headers=served.bearer
        ) as speaker:
            speaker.send('{"type": "rename", "name": "told to everyone"}')
            while json.loads(speaker.recv())["type"] != "title_changed":
                pass
        received = 0
        for item in there:
            data = b""
            while b'"title_changed"' not in data and (piece := item.recv(65536)):
                data += piece
            received += b"HTTP/1.1 101" in data and b"told to everyone" in data
    finally:
        for item in there:
            item.close()

    assert received == count
    assert served.ask("GET", "/api/health", served.bearer)[0] == 200
