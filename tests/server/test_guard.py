"""Who gets through to the server, and who does not: names, origins, tokens, bodies."""

import atexit
import itertools
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from refold.server import access
from refold.server.access import Access
from refold.server.guard import MAX_JSON_BYTES, Guard, Names

pytestmark = pytest.mark.anyio
USED = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, USED)
ACCESS = Access(b"k" * 32, USED)
NAMES = Names.of(["127.0.0.1", "localhost", "[::1]"], 3500, tls=False)
HERE = "127.0.0.1:3500"
JSON = ("content-type", "application/json")
BEARER = ("authorization", f"Bearer {ACCESS.bearer}")
Header = tuple[str, str]


def cookie() -> Header:
    return ("cookie", f"{ACCESS.cookie_name}={ACCESS.redeem(ACCESS.new_launch())}")


async def status(
    method: str, headers: Sequence[Header], *, path: str = "/api/x", body: bytes = b"{}"
) -> int:
    """Return the status of a request; 200 if the application behind the guard was reached.

    `method` WS is a handshake of a WebSocket.
    """
    sent_messages = list[Any]()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Any:
        sends = method not in ("GET", "DELETE")
        return {"type": "http.request", "body": body if sends else b""}

    async def send(message: Any) -> None:
        sent_messages.append(message)

    scope = {
        "type": "websocket" if method == "WS" else "http", "method": method, "path": path,
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in headers],
    }  # fmt: skip
    guard = Guard(application, ACCESS, NAMES, ("/", "/api/login"), "/hooks/")
    await guard(scope, receive, send)
    assert [
        m["type"] for m in sent_messages if m["type"].startswith("websocket")
    ] == [] or (sent_messages[0]["type"] == "websocket.http.response.start")
    return sent_messages[0]["status"]


@pytest.mark.parametrize("method", ["GET", "WS"])
async def test_a_request_with_an_absolute_uri_is_refused(method: str) -> None:
    texts = [("host", HERE), BEARER]

    assert await status(method, texts, path=f"http://{HERE}/api/x") == 421
    assert await status(method, texts, path="http://evil.example/api/x") == 421


async def test_only_valid_combinations_of_host_origin_token_and_type_are_accepted() -> None:
    hosts = {
        "ours": HERE,
        "rebound": "evil.example:3500",
        "port": "127.0.0.1:3501",
        "none": "",
    }
    origins = {
        "none": "", "ours": f"http://{HERE}", "other": "https://evil.example", "null": "null",
        "sibling": "http://127.0.0.1:3501", "tls": f"https://{HERE}",
    }  # fmt: skip
    tokens = {"none": [], "bearer": [BEARER], "cookie": [cookie()],
              "wrong": [("authorization", "Bearer x")]}  # fmt: skip
    kinds = {"json": [JSON], "text": [("content-type", "text/plain")],
             "form": [("content-type", "multipart/form-data; boundary=x")], "none": []}  # fmt: skip
    through = set[tuple[str, ...]]()
    cells = itertools.product(("GET", "POST", "WS"), hosts, origins, tokens, kinds)
    for method, host, origin, token, kind in cells:
        headers = [
            *([("host", hosts[host])] if hosts[host] else []),
            *([("origin", origins[origin])] if origins[origin] else []),
            *tokens[token], *kinds[kind],
        ]  # fmt: skip
        if await status(method, headers) == 200:
            through.add((method, host, origin, token, kind))

    every = ("json", "text", "form", "none")
    assert through == {
        *(("GET", "ours", o, t, k) for o in ("none", "ours") for t in ("bearer", "cookie")
          for k in every),
        *(("WS", "ours", o, "bearer", k) for o in ("none", "ours") for k in every),
        *(("WS", "ours", "ours", "cookie", k) for k in every),
        ("POST", "ours", "none", "bearer", "json"),
        ("POST", "ours", "ours", "bearer", "json"),
        ("POST", "ours", "ours", "cookie", "json"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", [("host", "127.0.0.1.nip.io:3500"), BEARER], 421),
        ("GET", [("host", HERE), ("host", "evil.example"), BEARER], 421),
        ("GET", [("host", HERE), ("origin", f"http://{HERE}"), ("origin", "x"), BEARER], 403),
        ("POST", [("host", HERE), ("content-type", "application/json;charset=x"),
                  ("sec-fetch-site", "cross-site"), cookie()], 403),
        ("POST", [("host", HERE), ("content-type", "application/json;charset=x"), BEARER], 415),
        ("GET", [("host", HERE), ("sec-fetch-site", "same-site"), cookie()], 403),
        ("GET", [("host", HERE), ("sec-fetch-site", "CROSS-SITE"), cookie()], 403),
        ("GET", [("host", HERE), *[("sec-fetch-site", "none")] * 2, cookie()], 403),
        ("GET", [("host", HERE), ("sec-fetch-site", "none"), cookie()], 200),
        ("TRACE", [("host", HERE), BEARER, JSON], 405),
        ("POST", [("host", HERE), BEARER, JSON, ("content-length", str(MAX_JSON_BYTES + 1))], 413),
        ("GET", [("host", HERE), ("cookie", f"{ACCESS.cookie_name}=1.x.y")], 401),
        ("GET", [("host", HERE), ("authorization", f"Basic {ACCESS.bearer}")], 401),
        ("GET", [("host", "LOCALHOST:3500"), BEARER], 200),
        ("GET", [("host", "[::1]:3500"), BEARER], 200),
        ("PUT", [("host", HERE), BEARER, ("content-type", "application/octet-stream")], 200),
        ("POST", [("host", HERE), BEARER, ("content-type", "application/octet-stream")], 415),
        ("DELETE", [("host", HERE), BEARER], 200),
        ("DELETE", [("host", HERE), cookie()], 403),
    ],
)  # fmt: skip
async def test_the_guard_returns_the_expected_status_for_unusual_headers(
    method: str, headers: list[Header], expected: int
) -> None:
    assert await status(method, headers) == expected


async def test_a_static_page_needs_no_token_but_the_right_host() -> None:
    assert await status("GET", [("host", HERE)], path="/") == 200
    assert await status("GET", [("host", "evil.example:3500")], path="/") == 421
    assert await status("GET", [("host", HERE)], path="/dev/../api/x") == 401


def test_a_launch_token_can_be_redeemed_once() -> None:
    token = ACCESS.new_launch()

    assert ACCESS.has_cookie(ACCESS.redeem(token))
    assert ACCESS.redeem(token) == ""
    assert ACCESS.redeem("") == ""
    assert ACCESS.redeem(ACCESS.new_launch() + "0") == ""


def test_a_launch_token_can_be_redeemed_once_across_servers_with_its_secret(
    tmp_path: Path,
) -> None:
    first, other, restarted = (
        access.load_access(tmp_path / "server.key") for _ in range(3)
    )
    token, unused = first.new_launch(), first.new_launch()

    assert first.has_cookie(other.redeem(token))
    assert [item.redeem(token) for item in (first, other, restarted)] == [""] * 3
    assert restarted.redeem(unused)
    access.revoke_all(tmp_path / "server.key")
    assert access.load_access(tmp_path / "server.key").redeem(first.new_launch()) == ""


def test_servers_that_start_at_the_same_time_have_the_same_secret(tmp_path: Path) -> None:
    file = tmp_path / "server.key"
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(access.load_access, [file] * 64))

    assert len({item.bearer for item in loaded}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["server.key"]


def test_a_server_cut_off_while_it_writes_its_secret_starts_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", cut)
    with pytest.raises(KeyboardInterrupt):
        access.load_access(tmp_path / "server.key")
    monkeypatch.undo()

    assert access.load_access(tmp_path / "server.key").bearer


def test_a_launch_token_expires_and_its_record_is_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = Access(b"k" * 32, tmp_path)
    used, unused = own.new_launch(), own.new_launch()
    assert own.redeem(used)
    later = time.time() + access.LAUNCH_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)

    assert own.redeem(unused) == ""
    assert own.redeem(own.new_launch())
    assert len(list(tmp_path.iterdir())) == 1


def test_a_tampered_cookie_is_refused() -> None:
    value = ACCESS.redeem(ACCESS.new_launch())
    began, middle, seal = value.split(".")

    later = f"{int(began) + 1}.{middle}.{seal}"
    assert [ACCESS.has_cookie(v) for v in (value, later, "", "..", seal)] == [True] + [
        False
    ] * 4
    assert not Access(b"z" * 32, USED).has_cookie(value)


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("POST", "/hooks/ci", [("host", HERE), JSON], 200),
        ("POST", "/hooks/ci", [("host", "evil.example"), JSON], 421),
        ("POST", "/hooks/ci", [("host", HERE), ("origin", "https://evil.example"), JSON], 403),
        ("POST", "/hooks/ci", [("host", HERE), ("sec-fetch-site", "cross-site"), JSON], 403),
        ("POST", "/hooks/ci", [("host", HERE), ("content-type", "text/plain")], 415),
        ("POST", "/hooks/ci", [("host", HERE), JSON, ("content-length", "65537")], 413),
        ("POST", "/hooks", [("host", HERE), JSON], 401),
        ("POST", "/HOOKS/ci", [("host", HERE), JSON], 401),
        ("POST", "/api/hooks/ci", [("host", HERE), JSON], 401),
        ("GET", "/hooks/ci", [("host", HERE)], 401),
        ("PUT", "/hooks/ci", [("host", HERE), JSON], 401),
        ("DELETE", "/hooks/ci", [("host", HERE)], 401),
        ("WS", "/hooks/ci", [("host", HERE)], 401),
    ],
)  # fmt: skip
async def test_only_a_post_to_a_webhook_needs_no_token(
    method: str, path: str, headers: list[Header], expected: int
) -> None:
    assert await status(method, headers, path=path) == expected
