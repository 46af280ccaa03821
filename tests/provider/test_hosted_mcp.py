"""MCP servers that the provider connects to: what is sent, and what becomes of the answer."""

from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.engine.answer_draft import MAX_HOSTED_CALLS, Draft
from refold.errors import ProviderError
from refold.provider.port import (
    Delta,
    Done,
    HostedCall,
    HostedResult,
    HostedServer,
    Retrying,
    TextDelta,
    ThinkingDelta,
)
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer
from refold.values.messages import Thinking
from tests.provider.hosted_streams import (
    ANSWERS,
    CALL,
    LISTED,
    RESULT,
    USE,
    anthropic_answer,
    openai_answer,
)
from tests.provider.wires import (
    TOOLS,
    message,
    open_wire,
    read_deltas,
    request,
    request_body,
    spec_of,
    stream_deltas,
)

DOCS = HostedServer("docs", "https://docs.example/mcp", "t0ken", (("X-Team", "7"),))
PLAIN = HostedServer("plain", "https://plain.example/mcp")
HOSTS: tuple[WireName, ...] = ("anthropic", "openai-responses")
KEPT_USE = msgspec.json.encode({"hosted": "docs", "items": [USE, RESULT]})
KEPT_CALL = msgspec.json.encode({"hosted": "docs", "items": [CALL]})
KEPT_LIST = msgspec.json.encode({"hosted": "docs", "items": [LISTED]})
TOLD = message(
    "assistant",
    Thinking("", "anthropic", Raw(KEPT_USE)),
    Thinking("", "openai-responses", Raw(KEPT_LIST)),
    Thinking("", "openai-responses", Raw(KEPT_CALL)),
    "Rain.",
)
WORDS = (
    'The tool search of the MCP server docs was called with {"query":"rain"}. '
    "It returned: It rains."
)
BACK = request(message("user", "Will it rain?"), TOLD, message("user", "And now?"))


def test_anthropic_gets_the_servers_with_a_toolset_for_each() -> None:
    body = request_body(
        "anthropic", request(message("user", "?"), tools=TOOLS, hosted=(DOCS, PLAIN))
    )

    assert body["mcp_servers"] == [
        {"type": "url", "name": "docs", "url": DOCS.url, "authorization_token": "t0ken"},
        {"type": "url", "name": "plain", "url": PLAIN.url},
    ]
    assert body["tools"][2:] == [
        {"type": "mcp_toolset", "mcp_server_name": "docs"},
        {"type": "mcp_toolset", "mcp_server_name": "plain"},
    ]


def test_openai_gets_the_servers_as_tools() -> None:
    model_request = request(message("user", "?"), tools=TOOLS, hosted=(DOCS, PLAIN))

    body = request_body("openai-responses", model_request)

    assert body["tools"][2:] == [
        {
            "type": "mcp", "server_label": "docs", "server_url": DOCS.url,
            "require_approval": "never", "authorization": "t0ken", "headers": {"X-Team": "7"},
        },
        {
            "type": "mcp", "server_label": "plain", "server_url": PLAIN.url,
            "require_approval": "never",
        },
    ]  # fmt: skip


def test_mcp_beta_header_is_sent_only_with_servers() -> None:
    async def main() -> list[str]:
        good = answer("anthropic", Reply("Yes."))
        async with open_wire("anthropic", good, good) as (provider, server):
            await stream_deltas(provider, request(message("user", "?"), hosted=(DOCS,)))
            await stream_deltas(provider, request(message("user", "?")))
            return [item.headers.get("anthropic-beta", "") for item in server.heard]

    assert anyio.run(main) == ["mcp-client-2025-11-20", ""]


@pytest.mark.parametrize("wire", HOSTS)
def test_provider_that_hosts_no_mcp_servers_is_sent_none(
    wire: WireName,
) -> None:
    other = replace(spec_of(wire), hosts_mcp=False)

    body = request_body(wire, request(message("user", "?"), hosted=(DOCS,)), spec=other)

    assert "docs.example" not in msgspec.json.encode(body).decode()


def read_hosted_deltas(wire: WireName, answer: Answer) -> list[Delta]:
    """Return what a real client that named the server makes of an answer."""

    async def main() -> list[Delta]:
        async with open_wire(wire, answer) as (provider, _):
            return await stream_deltas(
                provider, request(message("user", "?"), hosted=(DOCS,))
            )

    return anyio.run(main)


def list_hosted(deltas: list[Delta]) -> list[HostedCall | HostedResult]:
    return [delta for delta in deltas if isinstance(delta, HostedCall | HostedResult)]


@pytest.mark.parametrize(("wire", "id_", "expected"), [
    ("anthropic", "mcptoolu_1", KEPT_USE), ("openai-responses", "mcp_1", KEPT_CALL),
])  # fmt: skip
def test_hosted_mcp_call_is_reported_with_its_result_and_stored_unchanged(
    wire: WireName, id_: str, expected: bytes
) -> None:
    deltas = read_hosted_deltas(wire, ANSWERS[wire])

    arguments = '{"query":"rain"}'
    assert list_hosted(deltas) == [
        HostedCall(id_, "mcp__docs__search"),
        HostedResult(id_, arguments, "It rains.", False, wire, Raw(expected)),
    ]
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["Rain."]
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].stop == "end"


@pytest.mark.parametrize("wire", HOSTS)
def test_hosted_call_in_an_answer_without_configured_servers_is_ignored(
    wire: WireName,
) -> None:
    deltas = read_deltas(wire, ANSWERS[wire])

    assert list_hosted(deltas) == []
    assert [delta for delta in deltas if isinstance(delta, ThinkingDelta)] == []


def test_hosted_tool_list_is_stored_so_that_it_need_not_be_fetched_again() -> None:
    deltas = read_hosted_deltas("openai-responses", openai_answer())

    assert ThinkingDelta("", "openai-responses", Raw(KEPT_LIST)) in deltas


def test_hosted_server_that_lists_no_tools_is_reported_as_a_failed_call() -> None:
    failed: dict[str, Any] = {**LISTED, "tools": [], "error": "401 Unauthorized"}
    body = ANSWERS["openai-responses"].body
    assert isinstance(body, bytes)
    body = body.replace(msgspec.json.encode(LISTED), msgspec.json.encode(failed))

    deltas = read_hosted_deltas(
        "openai-responses", replace(ANSWERS["openai-responses"], body=body)
    )

    assert list_hosted(deltas)[:2] == [
        HostedCall("mcpl_1", "mcp__docs__list_tools"),
        HostedResult("mcpl_1", "", "401 Unauthorized", failed=True),
    ]


@pytest.mark.parametrize("error", [
    {"type": "http_error", "code": 500, "message": "broken"},
    {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "broken"}]},
    "broken",
])  # fmt: skip
def test_failed_hosted_call_at_openai_gives_the_reason(error: Any) -> None:
    call = {**CALL, "output": None, "error": error, "status": "failed"}

    result = list_hosted(read_hosted_deltas("openai-responses", openai_answer(call=call)))

    assert isinstance(result[1], HostedResult)
    assert (result[1].text, result[1].failed) == ("broken", True)


def test_failed_hosted_call_at_anthropic_gives_the_reason() -> None:
    failed = {**RESULT, "is_error": True, "content": "broken"}

    result = list_hosted(read_hosted_deltas("anthropic", anthropic_answer(result=failed)))

    assert isinstance(result[1], HostedResult)
    assert (result[1].text, result[1].failed) == ("broken", True)


def test_answer_paused_between_hosted_calls_is_marked_as_paused() -> None:
    deltas = read_hosted_deltas("anthropic", anthropic_answer("", stop="pause_turn"))

    assert isinstance(deltas[-1], Done)
    assert (deltas[-1].stop, deltas[-1].paused) == ("length", True)


@pytest.mark.parametrize(("wire", "where", "items"), [
    ("anthropic", "messages", [USE, RESULT]), ("openai-responses", "input", [LISTED, CALL]),
])  # fmt: skip
def test_hosted_calls_are_sent_back_unchanged_while_their_server_is_configured(
    wire: WireName, where: str, items: list[dict[str, Any]]
) -> None:
    body = request_body(wire, replace(BACK, hosted=(DOCS,)))[where]

    content = body[1]["content"] if wire == "anthropic" else body[1:]
    content[1].pop("cache_control", None)  # of the prefix that is cached
    assert content[:2] == items


@pytest.mark.parametrize("wire", HOSTS)
def test_hosted_calls_of_a_removed_server_are_sent_back_as_text(
    wire: WireName,
) -> None:
    body = request_body(wire, replace(BACK, hosted=(PLAIN,)))

    text = msgspec.json.encode(body).decode()
    assert "mcp_tool_use" not in text
    assert "mcp_call" not in text
    assert "mcp_list_tools" not in text
    assert WORDS in text.replace("\\", "")


@pytest.mark.parametrize("wire", ["openai-chat", "gemini", "ollama"])
def test_other_wires_send_neither_hosted_servers_nor_their_stored_calls(
    wire: WireName,
) -> None:
    text = msgspec.json.encode(request_body(wire, replace(BACK, hosted=(DOCS,)))).decode()

    assert "docs.example" not in text
    assert "mcp_tool_use" not in text


@pytest.mark.parametrize("wire", HOSTS)
def test_refused_mcp_servers_are_left_out_and_the_user_is_notified(
    wire: WireName,
) -> None:
    server_answer = Answer(
        b'{"error":{"type":"invalid_request_error","message":"Connection error while '
        b'communicating with MCP server docs"}}',
        status=400,
        headers={"content-type": "application/json"},
    )

    async def main() -> tuple[list[Delta], list[bytes]]:
        async with open_wire(wire, server_answer, answer(wire, Reply("Yes."))) as (
            provider,
            server,
        ):
            outcome = await stream_deltas(
                provider, request(message("user", "?"), hosted=(DOCS,))
            )
            return outcome, [item.body for item in server.heard]

    deltas, bodies = anyio.run(main)

    assert [b"docs.example" in body for body in bodies] == [True, False]
    (retrying,) = [delta for delta in deltas if isinstance(delta, Retrying)]
    assert "answers without the MCP servers" in retrying.reason
    assert "Connection error while communicating with MCP server docs" in retrying.reason


def test_token_of_a_hosted_server_is_not_in_its_repr() -> None:
    assert "t0ken" not in repr(request(message("user", "?"), hosted=(DOCS,)))


def test_answer_with_too_many_hosted_calls_is_an_error() -> None:
    draft = Draft(0, "m", lambda model, usage: None)
    for number in range(MAX_HOSTED_CALLS):
        draft.add(HostedCall(str(number), "mcp__docs__search"))

    with pytest.raises(ProviderError, match="more than 256 calls of its own"):
        draft.add(HostedCall("one more", "mcp__docs__search"))
