"""Every kind of request that refold sends uses the proxies and certificates of the environment."""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from httpx2 import Request

from refold.app.local_servers import server_models
from refold.app.otlp import MetricSums, find_collector, send, send_metrics
from refold.config.mcp_tokens import StoredGrants
from refold.config.paths import Paths
from refold.errors import BadInput, RefoldError, ToolFailed
from refold.mcp.connections import Connections, McpContext
from refold.mcp.grants import Grant
from refold.mcp.manifests import Manifests
from refold.mcp.oauth_login import log_in
from refold.mcp.oauth_session import ServerLogin
from refold.mcp.servers import ServerConfig, read
from refold.permissions.facts import Decision
from refold.place.commands import ShellCommands
from refold.provider.catalog import connect, find
from refold.provider.local.download import FromUrl
from refold.provider.local.hub import Hub
from refold.provider.local.models import LocalModel
from refold.provider.model_list import list_models
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from refold.tools.contract import Context
from refold.views.traces import TraceSpan
from refold.web.client import WebClient
from refold.web.search import SearXng
from tests.loopback_network import http_proxy, server_tls, socks_proxy, with_openssl
from tests.mcp.preparing import prepare_server
from tests.provider.wires import KEY, stream_deltas, words

pytestmark = [pytest.mark.peer, pytest.mark.slow, with_openssl]

Environ = Mapping[str, str]
NAMES = (
    "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)  # fmt: skip

MODEL = b"GGUF" * 100
SHA256 = "5" * 64


async def ask_model(url: str, environ: Environ, home: Path) -> object:
    there = {**environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}
    async with aclosing(connect(find("anthropic"), there)) as provider:
        return words(await stream_deltas(provider))


async def list_of_models(url: str, environ: Environ, home: Path) -> object:
    there = {**environ, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": KEY}
    return [model.name for model in await list_models(find("openai"), there)]


async def own_server(url: str, environ: Environ, home: Path) -> object:
    there = {**environ, "VLLM_BASE_URL": f"{url}/v1"}
    return [*await to_thread.run_sync(server_models, find("vllm"), there)]


async def fetch_page(url: str, environ: Environ, home: Path) -> object:
    client = WebClient(environ, obey_robots=False)
    page = await client.fetch(f"{url}/page", lambda _url, _private: Decision("allow"))
    return page.content.decode()


async def search_the_web(url: str, environ: Environ, home: Path) -> object:
    match = await WebClient(environ).search(SearXng(url), "cats", 3)
    return [hit.url for hit in match.hits]


def server(url: str, kind: str = "http") -> ServerConfig:
    (config,) = read(json.dumps({"s": {"type": kind, "url": f"{url}/mcp"}}), "test").servers
    return config


async def no_user(_question: object) -> str:
    raise ToolFailed("There is no user.")


async def call_mcp_tool(url: str, environ: Environ, home: Path) -> object:
    outside = McpContext(
        lambda _: ShellCommands({}),
        prepare_server,
        lambda *_: None,  # pyright: ignore
        environ=environ,
    )
    connections = Connections((server(url),), Manifests(home), outside)
    context = Context(Path("/"), "s", "c", lambda _: None, no_user)
    try:
        return (await connections.call("s", "double", {"number": 21}, context)).text
    finally:
        await to_thread.run_sync(connections.close)


async def log_in_to_mcp(url: str, environ: Environ, home: Path) -> object:
    pages = list[str]()

    async def browse(page: str) -> None:
        pages.append(page)
        raise BadInput("the page was shown")

    with pytest.raises(BadInput) as raised:
        await log_in(server(f"{url}/login"), environ, browse)
    if not pages:
        raise raised.value
    return [page.partition("?")[0].replace(url, "") for page in pages]


async def renew_mcp_token(url: str, environ: Environ, home: Path) -> object:
    config, reasons = server(url), list[str]()
    grants = StoredGrants(Paths(home, home, home), lambda *_secrets: None)
    old = Grant("old", "refresh", 1.0, token_endpoint=f"{url}/token", client_id="c")
    grants.write("s", config.url, old)
    login = ServerLogin(config, grants, environ, reasons.append)
    async with aclosing(login.async_auth_flow(Request("POST", config.url))) as flow:
        request = await anext(flow)
    if reasons:
        raise BadInput(reasons[0])
    return request.headers["authorization"]


async def send_traces(url: str, environ: Environ, home: Path) -> object:
    span = TraceSpan("1" * 32, "2" * 16, "", "turn", 1, 2, {})
    return await send([span], find_collector(url, environ))


async def send_sums(url: str, environ: Environ, home: Path) -> object:
    return await send_metrics(
        MetricSums((), 1, 2, "x"), find_collector(url, environ, "metrics")
    )


async def list_hub_files(url: str, environ: Environ, home: Path) -> object:
    hub = Hub.from_environ({**environ, "HF_ENDPOINT": url, "HF_HOME": str(home)})
    return (await to_thread.run_sync(hub.file, "org/model")).path


async def download_from_hub(url: str, environ: Environ, home: Path) -> object:
    hub = Hub.from_environ({**environ, "HF_ENDPOINT": url, "HF_HOME": str(home)})
    source = hub.source("model.gguf", "org/model")
    return await to_thread.run_sync(lambda: b"".join(source.pieces(DOWNLOADED, 0)))


async def download_from_address(url: str, environ: Environ, home: Path) -> object:
    source = FromUrl(f"{url}/model.gguf")
    return await to_thread.run_sync(lambda: b"".join(source.pieces(DOWNLOADED, 0)))


DOWNLOADED = LocalModel("m", "m.gguf", len(MODEL), SHA256)
Ask = Callable[[str, Environ, Path], Awaitable[object]]
REQUESTS: dict[Ask, object] = {
    ask_model: "Hello.",
    list_of_models: ["m-1"],
    own_server: ["vllm/m-1"],
    fetch_page: "a page",
    search_the_web: ["https://cats.example/"],
    call_mcp_tool: "42",
    log_in_to_mcp: ["/authorize"],
    renew_mcp_token: "Bearer new",
    send_traces: [],
    send_sums: [],
    list_hub_files: "model.gguf",
    download_from_hub: MODEL,
    download_from_address: MODEL,
}
every_request = pytest.mark.parametrize("ask", REQUESTS, ids=lambda ask: ask.__name__)


def page(content: object, status: int = 200, kind: str = "application/json") -> Answer:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Answer(body, status, headers={"content-type": kind})


def respond(request: ReceivedRequest) -> Answer:
    """Return what the servers of all requests answer."""
    origin = f"https://{request.headers['host']}"
    match request.path.partition("?")[0]:
        case "/v1/messages":
            return answer("anthropic", Reply("Hello."))
        case "/v1/models":
            return page({"data": [{"id": "m-1"}]})
        case "/page":
            return page(b"a page", kind="text/plain")
        case "/search":
            return page({"results": [{"url": "https://cats.example/", "title": "Cats"}]})
        case "/v1/traces" | "/v1/metrics":
            return page({})
        case "/api/models/org/model/tree/main":
            entry = {"path": "model.gguf", "size": len(MODEL), "lfs": {"oid": SHA256}}
            return page([entry])
        case "/model.gguf":
            return Answer(MODEL, headers={"content-length": str(len(MODEL))})
        case "/mcp" if request.method == "POST":
            return mcp(json.loads(request.body))
        case "/login/mcp":
            return Answer(status=401)
        case "/token":
            return page({"access_token": "new", "token_type": "Bearer"})
        case "/register":
            return page({"client_id": "c", "redirect_uris": [], **json.loads(request.body)})
        case "/.well-known/oauth-authorization-server":
            return page({
                "issuer": origin, "authorization_endpoint": f"{origin}/authorize",
                "token_endpoint": f"{origin}/token",
                "registration_endpoint": f"{origin}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            })  # fmt: skip
        case "/.well-known/oauth-protected-resource/login/mcp":
            return page(
                {"resource": f"{origin}/login/mcp", "authorization_servers": [origin]}
            )
        case _:
            return Answer(status=404)


def mcp(message: dict[str, object]) -> Answer:
    match message.get("method"):
        case "initialize":
            result: object = {
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }  # fmt: skip
        case "tools/list":
            result = {"tools": [{"name": "double", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "42"}]}
        case _ if "id" in message:
            error = {"code": -32601, "message": "unknown method"}
            return page({"jsonrpc": "2.0", "id": message["id"], "error": error})
        case _:
            return Answer(status=202)
    return page({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def send_request(
    ask: Ask, host: str, environ: Environ, certificate: Path, home: Path
) -> object:
    """Return what the request brought, or why it failed."""
    async with wire_server(respond, tls=server_tls(certificate)) as server:
        try:
            return await ask(server.url.replace("127.0.0.1", host), environ, home)
        except (RefoldError, ToolFailed, OSError) as error:
            return str(error)


def set_environ(monkeypatch: pytest.MonkeyPatch, environ: Environ) -> None:
    """Downloads that a user starts by an address read the variables of the process."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


@every_request
def test_request_uses_the_connect_tunnel_of_an_http_proxy(
    ask: Ask, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> tuple[object, set[str]]:
        async with http_proxy() as (proxy, texts):
            environ = {"HTTPS_PROXY": proxy, "SSL_CERT_FILE": str(certificate)}
            set_environ(monkeypatch, environ)
            result = await send_request(ask, "127.0.0.2", environ, certificate, tmp_path)
            return result, {line.rpartition(":")[0] for line in texts}

    assert anyio.run(run) == (REQUESTS[ask], {"CONNECT 127.0.0.2"})


@every_request
def test_request_goes_through_a_socks_proxy(
    ask: Ask, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> tuple[object, set[str]]:
        async with socks_proxy() as (proxy, texts):
            environ = {
                "ALL_PROXY": f"socks5h://{proxy}",
                "CURL_CA_BUNDLE": str(certificate),
            }
            set_environ(monkeypatch, environ)
            result = await send_request(ask, "127.0.0.2", environ, certificate, tmp_path)
            return result, {place.partition(":")[0] for place in texts}

    assert anyio.run(run) == (REQUESTS[ask], {"127.0.0.2"})


@every_request
def test_request_to_a_host_in_no_proxy_bypasses_the_proxy(
    ask: Ask, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[str]:
        async with http_proxy() as (proxy, texts):
            environ = {"HTTPS_PROXY": proxy, "NO_PROXY": "127.0.0.0/8"}
            set_environ(monkeypatch, environ)
            await send_request(ask, "127.0.0.2", environ, certificate, tmp_path)
            return texts

    assert anyio.run(run) == []


@every_request
@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"])
def test_request_trusts_the_certificates_of_the_environment(
    name: str, ask: Ask, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {name: str(certificate)}
    set_environ(monkeypatch, environ)

    result = anyio.run(send_request, ask, "127.0.0.1", environ, certificate, tmp_path)

    assert result == REQUESTS[ask]


@every_request
def test_untrusted_certificate_error_names_the_variable_and_is_not_retried(
    ask: Ask, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> tuple[object, int]:
        async with http_proxy() as (proxy, texts):
            environ = {"HTTPS_PROXY": proxy}
            set_environ(monkeypatch, environ)
            outcome = await send_request(ask, "127.0.0.2", environ, certificate, tmp_path)
            return outcome, len(texts)

    result, connections = anyio.run(run)

    # A call may come when the first try has failed already, and is then a reason for another.
    assert connections == 1 or ask is call_mcp_tool
    if ask is own_server:  # a server that does not answer is not there
        assert result == []
    else:
        assert "its certificate is not trusted here" in str(result)
        assert "NODE_EXTRA_CA_CERTS" in str(result)
        assert "check that a collector" not in str(result)
        assert "given up after" not in str(result)
