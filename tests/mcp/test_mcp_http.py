"""MCP servers over HTTP: streamable HTTP, the older SSE, headers, redirects and dead servers."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import Context as MCPContext

from refold.errors import ToolFailed
from refold.mcp.connections import Connections, McpContext
from refold.mcp.manifests import Manifests
from refold.mcp.servers import read
from refold.place.commands import ShellCommands
from refold.tools.contract import Context, Reply
from refold.values.display import AskedQuestion
from tests.mcp.preparing import prepare_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
Ask = Callable[[AskedQuestion], Any]
KEY = {"x-key": "secret"}


@contextmanager
def serve(
    kind: str, seen: list[dict[str, str]], hosts: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a server of the SDK on the loopback, which notes the headers it is sent."""
    import uvicorn
    from mcp.server import MCPServer
    from mcp.server.transport_security import TransportSecuritySettings

    server = MCPServer("over-http")

    @server.tool()
    def double(number: int) -> int:
        """Twice as much."""
        return number * 2

    @server.tool()
    def repeat(text: str, times: int) -> str:
        """The text, repeated."""
        return text * times

    @server.tool()
    async def grow(context: MCPContext) -> str:
        """Offer one tool more."""
        server.add_tool(double, name="later")
        await context.notify_tools_changed()
        return "grown"

    security = TransportSecuritySettings(allowed_hosts=list(hosts)) if hosts else None
    app = server.streamable_http_app if kind == "http" else server.sse_app
    starlette = app(transport_security=security)

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append({k.decode(): v.decode() for k, v in scope["headers"]})
        await starlette(scope, receive, send)

    with run_server(
        uvicorn.Server(uvicorn.Config(noting, port=0, log_level="critical"))
    ) as url:
        yield f"{url}/{'mcp' if kind == 'http' else 'sse'}"


@contextmanager
def run_server(server: Any) -> Iterator[str]:
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.02)
        (port,) = {s.getsockname()[1] for item in server.servers for s in item.sockets}
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)


def connections(
    tmp_path: Any, names: Mapping[str, str] = {}, **fields: object
) -> Connections:
    """`names` are hosts with their addresses, as a name server would say."""
    (config,) = read(json.dumps({"s": fields}), "test").servers

    async def addresses(host: str, port: int) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        return names.get(host, host).split()

    outside = McpContext(
        lambda _: ShellCommands({}),
        prepare_server,
        lambda *_: None,
        addresses=addresses,
    )
    return Connections((config,), Manifests(tmp_path), outside)


async def raise_no_user(asking: AskedQuestion) -> str:
    raise ToolFailed("There is no user.")


def call_tool(
    connections: Connections,
    tool: str = "double",
    ask: Ask = raise_no_user,
    **arguments: object,
) -> Reply:
    async def scenario() -> Reply:
        context = Context(anyio.Path("/"), "s", "c", lambda _: None, ask)  # pyright: ignore
        try:
            return await connections.call("s", tool, arguments, context)
        finally:
            await anyio.to_thread.run_sync(connections.close)

    return anyio.run(scenario)


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_tool_over_http_is_called_with_the_headers_of_the_file(
    kind: str, tmp_path: Any
) -> None:
    records = list[dict[str, str]]()
    with serve(kind, records) as url:
        mcp_connections = connections(
            tmp_path, type=kind, url=url, headers={"x-key": "secret"}
        )

        reply = call_tool(mcp_connections, number=21)

    assert reply.text == "42"
    assert {data.get("x-key") for data in records} == {"secret"}


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_server_at_a_private_name_gets_that_name_in_the_host_header(
    kind: str, tmp_path: Any
) -> None:
    records = list[dict[str, str]]()
    with serve(kind, records, hosts=["nas.example:*"]) as url:
        mcp_connections = connections(
            tmp_path,
            {"nas.example": "127.0.0.2 127.0.0.1"},
            type=kind,
            url=url.replace("127.0.0.1", "nas.example"),
        )

        reply = call_tool(mcp_connections, number=21)

    assert reply.text == "42"
    assert {data["host"].partition(":")[0] for data in records} == {"nas.example"}


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        ("8.8.8.8 127.0.0.1", "has public and private addresses (8.8.8.8, 127.0.0.1)"),
        ("127.0.0.1 2606:4700::1", "has public and private addresses"),
        ("169.254.169.254", "leads to 169.254.169.254, which is a reserved address"),
        ("0.0.0.0", "leads to 0.0.0.0, which is a reserved address"),
    ],
)
def test_a_server_whose_name_also_resolves_to_a_private_address_is_not_called(
    tmp_path: Any, kind: str, addresses: str, words: str
) -> None:
    records = list[dict[str, str]]()
    with serve(kind, records) as url:
        text = url.replace("127.0.0.1", "evil.example")
        mcp_connections = connections(
            tmp_path, {"evil.example": addresses}, type=kind, url=text
        )

        with pytest.raises(ToolFailed) as failed:
            call_tool(mcp_connections, number=21)

    assert words in str(failed.value)
    assert records == []


def test_a_server_that_speaks_only_sse_is_reached_when_its_type_is_http(
    tmp_path: Any,
) -> None:
    with serve("sse", []) as url:
        reply = call_tool(connections(tmp_path, type="http", url=url), number=4)

    assert reply.text == "8"


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_message_of_three_mebibytes_is_read(kind: str, tmp_path: Any) -> None:
    with serve(kind, []) as url:
        mcp_connections = connections(tmp_path, type=kind, url=url)

        reply = call_tool(mcp_connections, tool="repeat", text="x" * 1024, times=3 * 1024)

    assert reply.text.startswith("x" * 900_000)
    assert not reply.whole


def test_tool_changes_of_a_server_with_the_newest_protocol_are_noticed(
    tmp_path: Any,
) -> None:
    with serve("http", []) as url:
        servers = connections(tmp_path, type="http", url=url)

        async def scenario() -> list[str]:
            context = Context(anyio.Path("/"), "s", "c", lambda _: None, raise_no_user)  # pyright: ignore
            await servers.wait_until_settled(20)
            with anyio.move_on_after(15):
                while not servers.manifest("s").blocked_tools:
                    await servers.call("s", "grow", {}, context)
                    await anyio.sleep(0.2)
            await anyio.to_thread.run_sync(servers.close)
            return [tool.name for tool in servers.manifest("s").blocked_tools]

        assert anyio.run(scenario) == ["later"]


def test_an_sse_connection_that_breaks_off_fails_the_call_and_prints_nothing(
    tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    import uvicorn

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        head = [(b"content-type", b"text/event-stream"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        body = b"event: endpoint\ndata: /messages\n\n"
        await send({"type": "http.response.body", "body": body})

    server = uvicorn.Server(uvicorn.Config(breaking, port=0, log_level="critical"))
    with (
        run_server(server) as url,
        pytest.raises(ToolFailed, match="broke off in the middle"),
    ):
        call_tool(connections(tmp_path, type="sse", url=url))

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.parametrize("status", [302, 307])
def test_headers_are_not_sent_to_the_target_of_a_redirect(
    tmp_path: Any, status: int, kind: str
) -> None:
    import uvicorn

    stolen = list[bytes]()

    async def redirect_target(scope: Any, receive: Any, send: Any) -> None:
        stolen.append(scope["path"])
        await respond(send, 200, [])

    async def redirecting(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, status, [(b"location", target.encode())])

    with run_server(
        uvicorn.Server(uvicorn.Config(redirect_target, port=0, log_level="critical"))
    ) as target:
        own = uvicorn.Server(uvicorn.Config(redirecting, port=0, log_level="critical"))
        with run_server(own) as url, pytest.raises(ToolFailed, match="not connected"):
            call_tool(connections(tmp_path, type=kind, url=url, headers=KEY), number=1)

    assert stolen == []


def test_an_endless_sse_event_closes_the_connection_before_it_fills_the_memory(
    tmp_path: Any,
) -> None:
    import uvicorn

    byte_count = 0

    async def flooding(scope: Any, receive: Any, send: Any) -> None:
        nonlocal byte_count
        event = anyio.Event()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            event.set()

        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        body = b"data: " + b"x" * 100_000
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            while byte_count < 400_000_000 and not event.is_set():
                byte_count += len(body)
                await send({"type": "http.response.body", "body": body, "more_body": True})
                await anyio.sleep(0)
                body = b"x" * 100_000
            group.cancel_scope.cancel()

    server = uvicorn.Server(uvicorn.Config(flooding, port=0, log_level="critical"))
    with run_server(server) as url, pytest.raises(ToolFailed, match="not connected"):
        call_tool(connections(tmp_path, url=url, startupTimeout=8_000), number=1)

    assert byte_count < 100_000_000


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    "answer", [b'{"jsonrpc":"2.0","id":%d,"result":"text"}', b'{"id":%d,']
)
def test_an_invalid_answer_fails_its_call_with_one_line(
    tmp_path: Any, answer: bytes, kind: str
) -> None:
    import uvicorn

    offers: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "e", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "double", "inputSchema": {"type": "object"}}]},
    }  # fmt: skip

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive()).get("body", b"") if scope["method"] == "POST" else b""
        message = json.loads(body or "{}")
        if "id" not in message:
            await respond(send, 202 if body else 405, [])
            return
        result: dict[str, Any] = {
            "id": message["id"],
            "result": offers.get(message["method"], {}),
        }
        text, form = json.dumps({"jsonrpc": "2.0", **result}).encode(), "application/json"
        if message["method"] == "tools/call":
            text, form = answer % message["id"], kind
        if form != "application/json":
            text = b"event: message\ndata: " + text + b"\n\n"
        await respond(send, 200, [(b"content-type", form.encode())], text)

    server = uvicorn.Server(uvicorn.Config(broken, port=0, log_level="critical"))
    with run_server(server) as url, pytest.raises(ToolFailed) as failure:
        call_tool(connections(tmp_path, url=url), number=1)

    assert str(failure.value) == (
        "The MCP server s failed: its answer is not what the protocol allows, and was not read."
    )


def test_an_unreachable_server_is_reported_as_not_connected(tmp_path: Any) -> None:
    mcp_connections = connections(tmp_path, url="http://127.0.0.1:9/mcp")

    with pytest.raises(
        ToolFailed, match=r"The MCP server s is not connected: .*\(connection refused\)\."
    ):
        call_tool(mcp_connections, number=1)


async def respond(
    send: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b""
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
