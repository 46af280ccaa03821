"""The official SDKs as references for MCP servers that a provider connects to."""

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold.provider.port import HostedServer
from refold.testing.wire_server import WireServer, wire_server
from tests.provider.hosted_streams import ANSWERS, CALL, LISTED, RESULT, USE
from tests.provider.test_hosted_mcp import BACK, DOCS
from tests.provider.wires import KEY, TOOLS, message, request, request_body

pytestmark = pytest.mark.peer

WHY = "{} is not installed: make test-peers installs it"
PLAIN = HostedServer("plain", "https://plain.example/mcp")


def read_by_anthropic() -> list[dict[str, Any]]:
    """Return the content of our answer, as the SDK's client has it."""
    anthropic: Any = pytest.importorskip("anthropic", reason=WHY.format("anthropic"))

    async def call_sdk(server: WireServer) -> list[dict[str, Any]]:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url) as client:
            opening = client.beta.messages.stream(
                model="m-1", max_tokens=9, messages=[{"role": "user", "content": "?"}]
            )
            async with opening as stream:
                final_message = await stream.get_final_message()
                return [
                    block.model_dump(exclude_unset=True) for block in final_message.content
                ]

    async def serve() -> list[dict[str, Any]]:
        async with wire_server(ANSWERS["anthropic"]) as server:
            return await call_sdk(server)

    return anyio.run(serve)


def test_anthropic_client_reads_our_hosted_mcp_mock_as_intended() -> None:
    use, result, text = read_by_anthropic()

    assert use == USE
    assert result == RESULT
    assert text["text"] == "Rain."


def test_openai_client_reads_our_hosted_mcp_mock_as_intended() -> None:
    openai: Any = pytest.importorskip("openai", reason=WHY.format("openai"))

    async def serve() -> list[Any]:
        async with (
            wire_server(ANSWERS["openai-responses"]) as server,
            openai.AsyncOpenAI(api_key=KEY, base_url=server.url) as client,
        ):
            stream = await client.responses.create(model="m", input="?", stream=True)
            return [event async for event in stream]

    events = anyio.run(serve)

    done = [e.item for e in events if e.type == "response.output_item.done"]
    assert [item.type for item in done] == ["mcp_list_tools", "mcp_call", "message"]
    assert done[0].model_dump(exclude_unset=True) == LISTED
    assert done[1].model_dump(exclude_unset=True) == CALL


def test_anthropic_mcp_request_has_the_types_of_its_sdk() -> None:
    types: Any = pytest.importorskip("anthropic.types.beta", reason=WHY.format("anthropic"))
    pydantic: Any = pytest.importorskip("pydantic", reason=WHY.format("pydantic"))
    model_request = request(message("user", "?"), tools=TOOLS, hosted=(DOCS, PLAIN))

    body = request_body("anthropic", model_request)
    (back,) = [
        m
        for m in request_body("anthropic", with_servers())["messages"]
        if m["role"] == "assistant"
    ]

    server = pydantic.TypeAdapter(types.BetaRequestMCPServerURLDefinitionParam)
    toolset = pydantic.TypeAdapter(types.BetaMCPToolsetParam)
    strict = pydantic.TypeAdapter(list[types.BetaContentBlockParam])
    for item in body["mcp_servers"]:
        server.validate_python(item, extra="forbid")
    for item in body["tools"][2:]:
        toolset.validate_python(item, extra="forbid")
    strict.validate_python(back["content"])


def test_openai_mcp_request_has_the_types_of_its_sdk() -> None:
    tools: Any = pytest.importorskip(
        "openai.types.responses.tool_param", reason=WHY.format("openai")
    )
    inputs: Any = pytest.importorskip(
        "openai.types.responses.response_input_item_param", reason=WHY.format("openai")
    )
    pydantic: Any = pytest.importorskip("pydantic", reason=WHY.format("pydantic"))

    body = request_body("openai-responses", with_servers())

    tool = pydantic.TypeAdapter(tools.Mcp)
    for item in body["tools"]:
        tool.validate_python(item, extra="forbid")
    data = {value.get("type"): value for value in body["input"]}
    kinds = {"mcp_list_tools": inputs.McpListTools, "mcp_call": inputs.McpCall}
    for name, kind in kinds.items():
        pydantic.TypeAdapter(kind).validate_python(data[name], extra="forbid")


def with_servers() -> Any:
    return replace(BACK, hosted=(DOCS, PLAIN))
