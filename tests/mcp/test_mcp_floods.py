"""What a server may send too much of: levels, values, parts, notices, changes and progress."""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest

from refold.errors import ToolFailed
from refold.mcp.connections import Connections, McpContext
from refold.mcp.flood import FloodGate
from refold.mcp.http_transport import JudgedTransport, http_client
from refold.mcp.manifests import Manifests
from refold.mcp.message_limits import MAX_PARTS, limit_message, limit_parts, to_failure
from refold.mcp.servers import read
from refold.place.commands import ShellCommands
from refold.testing.wire_server import Answer, wire_server
from refold.tools.contract import Context, Reply
from tests.mcp.preparing import prepare_server

DEEP = b'{"a":' * 3_000 + b"1" + b"}" * 3_000
TOO_DEEP = "its answer is nested more than 150 levels deep, and was not read"
TOO_MANY = "its answer has more than 200,000 objects and lists, and was not read"


@pytest.mark.parametrize(
    ("message", "request_id", "words"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"content":[],"x":%b}}' % DEEP, 7, TOO_DEEP),
        (b'{"result":{"content":[],"x":%b},"id":"a b","jsonrpc":"2.0"}' % DEEP, "a b", TOO_DEEP),
        (b'{"id" : 3,"jsonrpc":"2.0","error":{"code":1,"data":%b}}' % DEEP, 3, TOO_DEEP),
        (b'{"id":1,"result":{"id":2,"x":[%b]}}' % (b"[" * 151 + b"]" * 151), 1, TOO_DEEP),
        (b'{"id":1,"result":{"x":[%b{}]}}' % (b"{}," * 200_001), 1, TOO_MANY),
        (b'{"result":{"x":[%b{}]},"id":9,"jsonrpc":"2.0"}' % (b"[]," * 200_001), 9, TOO_MANY),
        (b'{"id":4,"result":' + b"[" * 300_000, 4, TOO_MANY),
    ],
)  # fmt: skip
def test_an_answer_beyond_a_limit_becomes_an_error_for_the_same_request(
    message: bytes, request_id: object, words: str
) -> None:
    data = json.loads(limit_message(message))

    assert data["id"] == request_id
    assert data["error"]["message"] == words


@pytest.mark.parametrize(
    "message",
    [
        b'{"id":1,"result":{"text":"%b"}}' % (b"{[" * 400_000),
        b'{"id":1,"result":{"text":"%b"}}' % (b'\\"{' * 400_000),
        b'{"id":1,"result":{"a":[%b1]}}' % (b"[]," * 1_000),
        b'{"id":1,"result":%b}' % (b'{"a":' * 140 + b"1" + b"}" * 140),
    ],
)
def test_a_message_within_the_limits_is_not_changed(message: bytes) -> None:
    assert limit_message(message) == message


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":"text"}', 7),
        (b'{"id":"a","result":{"x":%b}}' % (b"1" * 10_000), "a"),
        (b'{"result":{"x":"%b"},"id":9}' % (b"x" * 100_000 + b"\xff"), 9),
        (b'{"id":3,"error":{"code":1,', 3),
        (b'{"id":3,"method":"x"', None),
        (b'{"result":{"id":3}}', None),
        (b'"' * 1_000_000, None),
    ],
)
def test_an_invalid_answer_fails_its_request(message: bytes, request_id: object) -> None:
    failure = to_failure(message)

    assert (json.loads(failure)["id"] if failure else None) == request_id
    if request_id is not None:
        assert b"its answer is not what the protocol allows, and was not read" in failure


def test_a_notification_that_is_nested_too_deeply_is_dropped() -> None:
    assert limit_message(b'{"jsonrpc":"2.0","method":"x","params":%b}' % DEEP) == b""


def listing(*schemas: bytes) -> bytes:
    tools = b",".join(
        b'{"name":"t%d","inputSchema":%b}' % (index, schema)
        for index, schema in enumerate(schemas)
    )
    return b'{"jsonrpc":"2.0","id":2,"result":{"tools":[%b]}}' % tools


def test_a_tool_listing_loses_only_the_schemas_that_are_nested_too_deeply() -> None:
    plain = b'{"type":"object"}'

    tools = json.loads(limit_message(listing(plain, DEEP, plain)))["result"]["tools"]

    assert [tool["name"] for tool in tools] == ["t0", "t1", "t2"]
    assert tools[2]["inputSchema"] == {"type": "object"}


@pytest.mark.parametrize("key", ["content", "contents", "messages"])
def test_a_result_has_at_most_a_thousand_parts(key: str) -> None:
    parts = [{"type": "text", "text": "x"}] * 5_000
    others = dict.fromkeys(("contents", "messages"), parts)  # as a hostile server adds
    whole = types.JSONRPCResponse(
        jsonrpc="2.0", id=1, result={**others, key: parts, "x": 1}
    )

    few = limit_parts(whole)

    assert isinstance(few, types.JSONRPCResponse)
    assert few.result["x"] == 1
    assert all(len(few.result[name]) <= MAX_PARTS + 1 for name in (*others, key))
    if key == "content":
        assert (
            few.result[key][-1]["text"] == "[4,000 more parts of the result were left out]"
        )


def notice(method: str) -> types.JSONRPCNotification:
    return types.JSONRPCNotification(jsonrpc="2.0", method=f"notifications/{method}")


@pytest.mark.parametrize(
    ("method", "at_once", "words"),
    [
        (
            "message",
            100,
            "sends more than 10 log messages in a second: the rest are left out",
        ),
        ("progress", 200, "sends more than 20 reports of progress in a second"),
        ("tools/list_changed", 10, "sends more than 1 changes of its lists in a second"),
        ("resources/updated", 100, "sends more than 20 notices in a second"),
        ("made-up", 100, "sends more than 20 notices in a second"),
    ],
)
def test_a_flood_of_messages_is_dropped_with_one_warning_and_answers_pass(
    method: str, at_once: int, words: str
) -> None:
    warnings, changes, updates = list[str](), list[int](), list[str]()

    async def run() -> tuple[int, bool]:
        await anyio.lowlevel.checkpoint()
        gate = FloodGate(warnings.append, lambda: changes.append(1), updates.append)
        passed = sum(gate.passes(notice(method)) for _ in range(5_000))
        answer = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={})
        return passed, gate.passes(answer)

    passed, answer_passes = anyio.run(run)

    assert at_once <= passed < at_once + 100  # the clock advances meanwhile
    assert answer_passes
    assert [sentence.startswith(words) for sentence in warnings] == [True]
    assert len(changes) == (5_000 - passed if "list_changed" in method else 0)
    assert len(updates) == (5_000 - passed if method == "resources/updated" else 0)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_http_answer_beyond_a_limit_becomes_an_error(kind: str) -> None:
    deep = b'{"jsonrpc":"2.0","id":7,"result":{"x":%b}}' % DEEP
    is_event_stream = kind != "application/json"
    body = b"event: message\ndata: %b\n\ndata: x\n\n" % deep if is_event_stream else deep

    async def run() -> bytes:
        answer = Answer(body, headers={"content-type": kind})
        async with (
            wire_server(answer) as server,
            http_client(JudgedTransport({})) as client,
        ):
            return (await client.get(server.url)).content

    data = anyio.run(run)

    assert TOO_DEEP.encode() in data
    assert b'"id":7' in data
    assert data.endswith(b"\n\ndata: x\n\n") is is_event_stream


def test_an_http_body_over_16_mib_fails_the_request() -> None:
    body = (b"x" * 1_000_000,) * 20

    async def run() -> None:
        answer = Answer(body, headers={"content-type": "application/json"})
        async with (
            wire_server(answer) as server,
            http_client(JudgedTransport({})) as client,
        ):
            await client.get(server.url)

    with pytest.raises(httpx2.ReadError, match="more than 16 MiB"):
        anyio.run(run)


SERVER = """
import json, sys
deep = '{"a":' * 3000 + "1" + "}" * 3000
schema = '{"type":"object","properties":{"a":' + '{"a":' * 2000 + "1" + "}" * 2000 + "}}"
def send(text): sys.stdout.write(text + "\\n")
def notify(method, **params):
    send(json.dumps({"jsonrpc": "2.0", "method": "notifications/" + method, "params": params}))
for line in sys.stdin:
    m = json.loads(line); i = m.get("id"); method = m.get("method")
    if i is None: continue
    if method == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "serverInfo": {"name": "e", "version": "1"},
             "capabilities": {"tools": {"listChanged": True}, "logging": {}}}
    elif method == "tools/list":
        send('{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"bad","inputSchema":%s},'
             '{"name":"x","inputSchema":{"type":"object"}}]}}' % (i, schema)); sys.stdout.flush(); continue
    elif method == "tools/call":
        what = m["params"]["arguments"]["what"]
        token = m["params"].get("_meta", {}).get("progressToken")
        if what == "deep":
            send('{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%s}}' % (i, deep))
            sys.stdout.flush(); continue
        for n in range(3000):
            if what == "log": notify("message", level="error", data="x")
            if what == "changes": notify("tools/list_changed")
            if what == "progress": notify("progress", progressToken=token, progress=n)
        r = {"content": [{"type": "text", "text": "done"}] * (5000 if what == "parts" else 1)}
    else: r = {}
    send(json.dumps({"jsonrpc": "2.0", "id": i, "result": r})); sys.stdout.flush()
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize("text", ["deep", "parts", "log", "changes", "progress"])
def test_a_server_that_floods_fails_at_most_one_call(tmp_path: Path, text: str) -> None:
    (tmp_path / "srv.py").write_text(SERVER)
    data = {"s": {"command": "python3", "args": [str(tmp_path / "srv.py")], "cwd": "/"}}
    (config,) = read(json.dumps(data), "test").servers
    log, progress = list[str](), list[str]()

    def note(level: str, message: str, session: str = "") -> None:
        log.append(message)

    outside = McpContext(lambda _: ShellCommands({}), prepare_server, note)
    servers = Connections((config,), Manifests(tmp_path / "pins"), outside)
    outcome = anyio.run(call_server, servers, text, progress)

    assert [t.name for t in servers.manifest("s").usable] == ["bad", "x"]
    assert len(log) < 300
    assert len(progress) < 300
    flooded = [line for line in log if "the rest are left out" in line]
    assert len(flooded) == (text in ("log", "changes", "progress"))
    match text:
        case "deep":
            assert outcome == f"The MCP server s failed: {TOO_DEEP}."
        case "parts":
            assert outcome.count("done") == MAX_PARTS
        case _:
            assert outcome == "done"


async def call_server(servers: Connections, tool_name: str, progress: list[str]) -> str:
    async def answer_no(_: Any) -> str:
        raise ToolFailed("There is no user.")

    context = Context(anyio.Path("/"), "s", "c", progress.append, answer_no)  # pyright: ignore
    try:
        reply: Reply = await servers.call("s", "x", {"what": tool_name}, context)
        return reply.text
    except ToolFailed as error:
        return str(error)
    finally:
        await anyio.to_thread.run_sync(servers.close)
