"""Logins at MCP servers: what they bring, how it is renewed, and what hostile servers get."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from refold.config.mcp_tokens import StoredGrants
from refold.config.paths import Paths
from refold.errors import BadInput, ToolFailed
from refold.mcp.connections import Connections, McpContext
from refold.mcp.grants import Grant
from refold.mcp.manifests import Manifests
from refold.mcp.oauth_login import log_in
from refold.mcp.oauth_network import OAuthNetwork
from refold.mcp.servers import ServerConfig, read
from refold.place.commands import ShellCommands
from tests.cli.running import command
from tests.mcp.oauth_server import Asked, OAuthServer, as_json, oauth_server
from tests.mcp.preparing import prepare_server
from tests.mcp.test_mcp_http import call_tool, run_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


@pytest.fixture
def auth_server() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


class User:
    """A person with a browser, and a place where tokens are stored."""

    def __init__(self, home: Path, server: OAuthServer, **fields: object) -> None:
        url = f"{server.url}/mcp"
        (self.config,) = read(json.dumps({"s": {"url": url, **fields}}), "test").servers
        self.home, self.learned, self.pages = home, list[str](), list[str]()
        paths = Paths(home, home, home)
        self.grants = StoredGrants(paths, lambda *secrets: self.learned.extend(secrets))

    async def browse(self, url: str) -> None:
        self.pages.append(url)
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            await browser.get(url)

    def log_in(self, config: ServerConfig | None = None) -> Grant:
        own_config = config or self.config
        before = self.grants.read("s", own_config.url)
        grant = anyio.run(log_in, own_config, {}, self.browse, before)
        self.grants.write("s", own_config.url, grant)
        return grant

    def stored_grant(self) -> Grant:
        grant = self.grants.read("s", self.config.url)
        assert grant is not None
        return grant

    def connections(self) -> Connections:
        outside = McpContext(
            lambda _: ShellCommands({}),
            prepare_server,
            lambda *_: None,
            self.grants,
        )
        return Connections((self.config,), Manifests(self.home / "mcp"), outside)

    def call_double(self, number: int) -> str:
        return call_tool(self.connections(), number=number).text


def answer_with(answer: Any) -> Callable[[Asked], Any]:
    return lambda _: answer


def test_a_login_stores_tokens_with_which_tools_are_called(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)

    user.log_in()
    text = user.call_double(21)

    assert text == "42"
    assert user.stored_grant().access in auth_server.good
    assert (tmp_path / "mcp_tokens.toml").stat().st_mode & 0o777 == 0o600
    assert {user.stored_grant().access, user.stored_grant().refresh} <= set(user.learned)
    (page,) = user.pages
    assert "code_challenge_method=S256" in page
    assert "redirect_uri=http%3A%2F%2F127.0.0.1%3A" in page


def test_without_a_login_the_call_fails_and_names_the_login_command(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)

    with pytest.raises(ToolFailed) as failed:
        user.call_double(21)

    assert str(failed.value) == (
        "The MCP server s is not connected: it asks for a login: run `refold mcp login s`. "
        "Nothing was done."
    )
    assert user.pages == []
    assert {item.path for item in auth_server.asked} == {"/mcp"}  # and is not tried as SSE


def test_a_refused_token_is_renewed_once(auth_server: OAuthServer, tmp_path: Path) -> None:
    user = User(tmp_path, auth_server)
    old = user.log_in()
    auth_server.good.clear()

    text = user.call_double(4)

    assert text == "8"
    assert user.stored_grant().access != old.access
    assert user.stored_grant().refresh != old.refresh
    (_, renewing) = auth_server.requests("/token")
    assert renewing.form["grant_type"] == "refresh_token"


def test_a_token_is_renewed_before_it_expires(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)
    auth_server.lasts = 5
    old = user.log_in()
    auth_server.lasts = 3600
    auth_server.good.discard(old.access)
    before = len(auth_server.requests("/mcp"))

    user.call_double(1)

    used = {
        request.headers.get("authorization")
        for request in auth_server.requests("/mcp")[before:]
    }
    assert used == {f"Bearer {user.stored_grant().access}"}


def test_a_call_whose_token_cannot_be_renewed_asks_for_a_login(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)
    user.log_in()
    auth_server.good.clear()
    auth_server.refresh.clear()

    with pytest.raises(ToolFailed, match=r"asks for a login: run `refold mcp login s`"):
        user.call_double(1)

    assert len(user.pages) == 1


def test_an_mcp_token_renewed_by_one_process_is_used_by_another_process(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user, other = User(tmp_path, auth_server), User(tmp_path, auth_server)
    user.log_in()
    auth_server.good.clear()

    texts = [user.call_double(1), other.call_double(2)]

    assert texts == ["2", "4"]
    assert len(auth_server.requests("/token")) == 2  # the login, and one renewal


def test_a_login_by_another_process_is_used_by_the_next_call(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)
    with pytest.raises(ToolFailed):
        user.call_double(1)

    user.log_in()

    assert user.call_double(1) == "2"


def test_scopes_that_a_call_lacked_are_requested_by_the_next_login(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)
    user.log_in()
    how = 'Bearer error="insufficient_scope", scope="write"'
    auth_server.instead["/mcp"] = lambda asked: (
        (403, {"www-authenticate": how}, b"") if "authorization" in asked.headers else None
    )

    with pytest.raises(
        ToolFailed, match=r"more rights \(write\): run `refold mcp login s`"
    ):
        user.call_double(1)
    auth_server.instead.clear()
    user.log_in()

    assert "scope=read+write" in user.pages[-1]


def test_a_configured_client_id_is_used_instead_of_registering_a_client(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    oauth = {"clientId": "mine", "clientSecret": "hidden-secret", "scopes": "more"}
    user = User(tmp_path, auth_server, oauth=oauth)

    user.log_in()

    assert auth_server.requests("/register") == []
    (token,) = auth_server.requests("/token")
    assert token.headers["authorization"].startswith("Basic ")
    assert "client_id=mine" in user.pages[0]
    assert "scope=read+more" in user.pages[0]
    assert "hidden-secret" in user.learned


def test_a_client_id_bound_to_an_issuer_is_sent_to_no_other_issuer(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    oauth = {
        "clientId": "mine", "clientSecret": "hidden-secret",
        "issuer": "https://login.example",
    }  # fmt: skip
    user = User(tmp_path, auth_server, oauth=oauth)

    user.log_in()

    lines = [f"{item.form} {item.headers}" for item in auth_server.asked]
    assert not any("hidden-secret" in text or "mine" in text for text in lines)


def test_tokens_of_a_server_are_not_sent_to_a_new_url_under_the_same_name(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)
    user.log_in()
    with oauth_server() as thief:
        moved = User(tmp_path, thief)

        with pytest.raises(ToolFailed, match="asks for a login"):
            moved.call_double(1)

    assert all("authorization" not in item.headers for item in thief.asked)


METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (
            {"issuer": "https://other.example"},
            "issuer mismatch",
        ),
        (
            {"token_endpoint": "https://169.254.169.254/token"},
            "is a reserved address",
        ),
        ({"token_endpoint": "https://10.0.0.1/token"}, "10.0.0.1 is in a private network"),
        ({"token_endpoint": "http://192.0.2.1/token"}, "it has no TLS"),
        ({"registration_endpoint": "http://1.1.1.1/r"}, "it has no TLS"),
        ({"authorization_endpoint": "http://1.1.1.1/a"}, "it has no TLS"),
        ({"authorization_endpoint": "https://[fe80::1]/a"}, "is a reserved address"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
    ],
)
def test_a_hostile_authorization_server_gets_no_token_and_is_named(
    auth_server: OAuthServer, tmp_path: Path, metadata: dict[str, Any], words: str
) -> None:
    auth_server.metadata = metadata
    user = User(tmp_path, auth_server)

    with pytest.raises(BadInput, match="no login at the MCP server s: ") as failed:
        user.log_in()

    assert words in str(failed.value)
    assert "\n" not in str(failed.value)
    assert auth_server.good == set()
    assert not (tmp_path / "mcp_tokens.toml").exists()


@pytest.mark.parametrize(
    ("server", "other", "words"),
    [
        (
            ["8.8.8.8 127.0.0.1"],
            "127.0.0.1",
            "evil.example has public and private addresses",
        ),
        (["8.8.8.8"], "127.0.0.1", "127.0.0.1 is this machine"),
        (["8.8.8.8"], "10.0.0.1", "10.0.0.1 is in a private network"),
        (
            ["8.8.8.8", "127.0.0.1"],
            "127.0.0.1",
            "127.0.0.1 is this machine",
        ),  # it is rebound
        (["8.8.8.8"], "as.example", "as.example has public and private addresses"),
        (["127.0.0.1"], "as.example", "as.example has public and private addresses"),
        (["127.0.0.1"], "10.0.0.1", "10.0.0.1 is in a private network"),
    ],
)
def test_a_private_authorization_server_is_refused_for_a_public_mcp_server(
    server: list[str], other: str, words: str
) -> None:
    answers = iter(server)
    last = server[-1]

    async def resolve(host: str, port: int) -> list[str]:
        await anyio.lowlevel.checkpoint()
        if host == "evil.example":
            return next(answers, last).split()
        return ["8.8.8.8", "127.0.0.1"] if host == "as.example" else [host]

    async def check() -> None:
        network = OAuthNetwork("https://evil.example/mcp", {}, resolve)
        await network.check("https://evil.example/.well-known/x")
        await network.check(f"https://{other}/admin")

    with pytest.raises(BadInput) as failed:
        anyio.run(check)

    assert words in str(failed.value)


def test_a_server_whose_address_changes_during_a_login_is_refused() -> None:
    answers = iter(["8.8.8.8", "127.0.0.1"])

    async def resolve(host: str, port: int) -> list[str]:
        await anyio.lowlevel.checkpoint()
        return [next(answers)]

    async def check() -> None:
        network = OAuthNetwork("https://evil.example/mcp", {}, resolve)
        for _ in range(2):
            await network.check("https://evil.example/mcp")

    with pytest.raises(BadInput, match=r"leads to 127\.0\.0\.1 now, and led elsewhere"):
        anyio.run(check)


def test_a_private_server_may_have_a_private_authorization_server() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await anyio.lowlevel.checkpoint()
        return {"mcp.corp": ["10.0.0.1", "fd00::1"], "login.corp": ["10.0.0.2"]}[host]

    async def check() -> None:
        network = OAuthNetwork("https://mcp.corp/mcp", {}, resolve)
        await network.check("https://login.corp/token")

    anyio.run(check)


@pytest.mark.parametrize("path", [RESOURCE, METADATA, "/register", "/token"])
def test_an_authorization_response_over_1_mb_fails_the_login(
    auth_server: OAuthServer, tmp_path: Path, path: str
) -> None:
    auth_server.instead[path] = answer_with((200, {}, b'{"a":"' + b"x" * 3_000_000 + b'"}'))

    with pytest.raises(BadInput, match="sent more than 1 MB"):
        User(tmp_path, auth_server).log_in()


def test_a_failed_registration_names_the_setting_to_write(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    auth_server.instead["/register"] = answer_with((401, {}, b""))

    with pytest.raises(BadInput, match=r"Registration failed: 401 .*as oauth\.clientId"):
        User(tmp_path, auth_server).log_in()


NONSENSE = [b"", b"{", b"[]", b"\xff\xfe", b'{"access_token": 7}']


@pytest.mark.parametrize("path", ["/register", "/token"])
@pytest.mark.parametrize("body", NONSENSE)
def test_an_invalid_response_fails_the_login_with_one_sentence(
    auth_server: OAuthServer, tmp_path: Path, path: str, body: bytes
) -> None:
    auth_server.instead[path] = answer_with((200, {}, body))

    with pytest.raises(BadInput, match="no login at the MCP server s: ") as failed:
        User(tmp_path, auth_server).log_in()

    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("path", [RESOURCE, METADATA])
@pytest.mark.parametrize("body", NONSENSE)
def test_invalid_metadata_falls_back_to_the_endpoints_of_the_server(
    auth_server: OAuthServer, tmp_path: Path, path: str, body: bytes
) -> None:
    auth_server.instead[path] = answer_with((200, {}, body))

    grant = User(tmp_path, auth_server).log_in()

    assert grant.token_endpoint == f"{auth_server.url}/token"


@pytest.mark.parametrize("path", ["/register", "/token", "/mcp"])
def test_no_secret_is_sent_to_the_target_of_a_redirect(
    auth_server: OAuthServer, tmp_path: Path, path: str
) -> None:
    stolen = list[str]()

    async def thief(scope: Any, receive: Any, send: Any) -> None:
        stolen.append(scope["path"])

    import uvicorn

    other = uvicorn.Server(uvicorn.Config(thief, port=0, log_level="critical"))
    with run_server(other) as target:
        auth_server.instead[path] = answer_with((307, {"location": f"{target}/x"}, b""))
        with pytest.raises(BadInput, match="no login at the MCP server s: "):
            User(tmp_path, auth_server).log_in()

    assert [path for path in stolen if path == "/x"] == []


def test_a_web_page_that_guesses_the_callback_port_cannot_end_the_login(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)
    status_codes = list[int]()

    async def browse(url: str) -> None:
        back = dict(httpx2.URL(url).params)["redirect_uri"]
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            for query in ("?code=a&state=b", "?error=x", "", "?state="):
                status_codes.append((await browser.get(back + query)).status_code)
            status_codes.append((await browser.post(back, json={})).status_code)
            status_codes.append((await browser.get(url)).status_code)

    grant = anyio.run(log_in, user.config, {}, browse, None)

    assert status_codes == [404, 404, 404, 404, 404, 200]
    assert grant.access in auth_server.good


def test_a_login_refused_in_the_browser_fails_with_a_reason_on_one_line(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    def refusing(request: Asked) -> Any:
        more = "error=access_denied&error_description=not%0Ayou%1b[2J"
        url = f"{request.form['redirect_uri']}?{more}&state={request.form['state']}"
        return 302, {"location": url}, b""

    auth_server.instead["/authorize"] = refusing

    with pytest.raises(BadInput) as failed:
        User(tmp_path, auth_server).log_in()

    assert str(failed.value) == (
        "no login at the MCP server s: it was refused: access_denied (not you [2J)"
    )


def test_a_failed_renewal_whose_response_echoes_secrets_shows_none(
    auth_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, auth_server)
    old = user.log_in()
    auth_server.good.clear()
    auth_server.instead["/token"] = lambda asked: as_json(500, **asked.form)

    with pytest.raises(ToolFailed) as failed:
        user.call_double(1)

    assert "could not be renewed: the authorization server answered with 500" in str(
        failed.value
    )
    assert old.refresh not in str(failed.value)
    assert user.stored_grant() == old  # it may answer again


@pytest.mark.parametrize(
    ("server_entry", "words"),
    [
        ({"url": "http://mcp.example/mcp"}, r"http://mcp\.example has no TLS"),
        ({"url": "https://x.example", "headers": {"authorization": "Bearer x"}}, "header"),
        ({"command": "server"}, "is a program"),
    ],
)
def test_an_impossible_login_is_refused_with_the_reason(
    server_entry: dict[str, Any], words: str
) -> None:
    (config,) = read(json.dumps({"s": server_entry}), "test").servers

    async def browse(url: str) -> None:
        raise AssertionError(url)

    with pytest.raises(BadInput, match=words):
        anyio.run(log_in, config, {}, browse)


def test_login_at_a_server_that_needs_none_is_refused_with_that_reason(
    tmp_path: Path, auth_server: OAuthServer
) -> None:
    auth_server.instead["/mcp"] = answer_with((200, {}, b"{}"))

    with pytest.raises(BadInput, match="it asks for none"):
        User(tmp_path, auth_server).log_in()


BROWSER = """\
#!{python}
import html, re, sys, urllib.request
page = open(sys.argv[1]).read()
urllib.request.urlopen(html.unescape(re.search("url=([^\\"]+)", page)[1])).read()
"""


def refold(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_mcp_login_opens_the_browser_and_shows_or_records_no_token(
    auth_server: OAuthServer, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(BROWSER.format(python=sys.executable))
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(browser))
    refold("mcp", "add", "s", "--no-start", f"{auth_server.url}/mcp", cwd=tmp_path)

    before = refold("mcp", "test", "s", cwd=tmp_path)
    login = refold("mcp", "login", "s", cwd=tmp_path)
    tested = refold("mcp", "test", "s", cwd=tmp_path)
    answers = tmp_path / "answers.jsonl"
    call = {"calls": [{"tool": "mcp__s__double", "arguments": {"number": 21}}]}
    answers.write_text(f"{json.dumps(call)}\n{json.dumps({'text': 'Done.'})}\n")
    run = refold(
        "-p", "Double it.", "--script", str(answers), "--allow", "mcp__s", cwd=tmp_path
    )  # fmt: skip
    out = refold("mcp", "logout", "s", cwd=tmp_path)
    after = refold("mcp", "test", "s", cwd=tmp_path)

    assert before[0] == after[0] == 1
    assert "it asks for a login: run `refold mcp login s`" in before[2]
    assert (login[0], login[2]) == (0, "")
    assert "You are logged in at s" in login[1]
    assert "double  Twice as much." in tested[1]
    assert run[0] == 0, run
    assert out[1] == "The tokens of s are deleted here.\n"
    paths = [file for file in home.rglob("*") if file.is_file()]
    assert any("42" in file.read_text(errors="replace") for file in paths)
    for secret in (*auth_server.good, *auth_server.refresh):
        assert not any(secret.encode() in file.read_bytes() for file in paths)
        assert secret not in f"{before}{login}{tested}{run}{out}"


def test_a_login_during_a_session_connects_the_server(
    tmp_path: Path, auth_server: OAuthServer
) -> None:
    user = User(tmp_path, auth_server)
    servers = user.connections()

    async def scenario() -> list[str]:
        states = list[str]()
        with anyio.fail_after(30):
            await servers.wait_until_settled(20)
            states.append(servers.statuses()[0].state)
            await user.browse(await servers.log_in("s"))
            while servers.statuses()[0].state != "connected":
                await anyio.sleep(0.02)
        states.append(servers.statuses()[0].state)
        return states

    try:
        assert anyio.run(scenario) == ["failed", "connected"]
    finally:
        servers.close()
    assert user.stored_grant().access
    assert [servers.log_out("s"), servers.log_out("s")] == [True, False]


def test_a_login_whose_client_registration_fails_is_reported(
    tmp_path: Path, auth_server: OAuthServer
) -> None:
    user = User(tmp_path, auth_server)
    auth_server.instead["/register"] = answer_with(as_json(400, error="no"))
    servers = user.connections()
    try:
        with pytest.raises(ToolFailed, match="no login at the MCP server s"):
            anyio.run(servers.log_in, "s")
    finally:
        servers.close()
