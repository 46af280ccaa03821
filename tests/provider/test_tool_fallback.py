"""A tool that a provider refuses is left out, recognized by the provider's own words."""

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from refold import Agent
from refold.errors import ToolRefused
from refold.journal.events.kinds import ModelAnswered
from refold.provider.capability_fallback import ToolFallback
from refold.provider.port import Delta, Done, Retrying
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, wire_server
from refold.values.tools import ToolSpec
from tests.provider.wires import message, open_wire, request, stream_deltas, words

ANY = Raw(b'{"type":"object","properties":{}}')
NAMES = ("bash", "look", "mcp__s__good", "mcp__s__bad")
TOOLS = tuple(ToolSpec(name, "", ANY) for name in NAMES)

# Each as a real server sends it, shortened. All mean the fourth tool.
REFUSALS: list[tuple[WireName, Any]] = [
    ("openai-chat", {"error": {
        "message": "Invalid schema for function 'mcp__s__bad': In context=('properties', 'x'), array schema missing items.",
        "type": "invalid_request_error", "param": "tools[3].function.parameters", "code": "invalid_function_parameters"}}),
    ("openai-chat", {"error": {"message": "invalid JSON schema for tool mcp__s__bad: unknown keyword", "type": "invalid_request_error"}}),
    ("openai-chat", {"detail": [{"type": "missing", "loc": ["body", "tools", 3, "function", "parameters"], "msg": "Field required"}]}),
    ("openai-chat", {"object": "error", "message": "[{'type': 'missing', 'loc': ('body', 'tools', 3, 'function'), 'msg': 'Field required'}]"}),
    ("openai-responses", {"error": {
        "message": "Invalid 'tools[3].name': string does not match pattern.",
        "type": "invalid_request_error", "param": "tools[3].name", "code": "invalid_value"}}),
    ("anthropic", {"type": "error", "error": {
        "type": "invalid_request_error",
        "message": "tools.3.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"}}),
    ("gemini", {"error": {
        "code": 400, "status": "INVALID_ARGUMENT",
        "message": "* GenerateContentRequest.tools[0].function_declarations[3].parameters.properties[x].items: missing field.\n"}}),
    ("gemini", [{"error": {
        "code": 400, "status": "INVALID_ARGUMENT",
        "message": "Invalid JSON payload received. Unknown name \"x\" at 'tools[0].function_declarations[3].parameters': Cannot find field."}}]),
    ("ollama", {"error": "tool 'mcp__s__bad': invalid schema"}),
]  # fmt: skip
# Messages that name no tool of the request, or have another subject.
OTHERS = [
    "at most 128 tools. 3 more were sent",
    "messages.3: tool_use mcp__s__bad has no result",
    "tools[0].function_declarations: too many",
    "tools.9.custom.name: not unique",
    "Invalid schema for response_format 'look'",
]


def refusal(body: Any) -> Answer:
    return Answer(msgspec.json.encode(body), 400)


def list_offered_tools(body: bytes) -> list[str]:
    return [name for name in NAMES if f'"name":"{name}"'.encode() in body]


@pytest.mark.parametrize(("wire", "body"), REFUSALS)
def test_refused_tool_is_left_out_and_named_in_the_response(
    wire: WireName, body: Any
) -> None:
    good = answer(wire, Reply("Yes."))

    async def main() -> tuple[list[Delta], list[Delta], list[list[str]]]:
        # With a schema for the answer, which the same words could be about.
        schema = Raw(b'{"type":"object","properties":{"a":{"type":"string"}}}')
        question = request(message("user", "?"), tools=TOOLS, schema=schema)
        async with open_wire(wire, refusal(body), good, good) as (provider, server):
            fallback = ToolFallback(provider)
            first = await stream_deltas(fallback, question)
            second = await stream_deltas(fallback, question)
            return first, second, [list_offered_tools(item.body) for item in server.heard]

    first, second, tools = anyio.run(main)

    assert words(first) == words(second) == "Yes."
    assert tools == [list(NAMES), list(NAMES[:3]), list(NAMES[:3])]
    assert len([delta for delta in first if isinstance(delta, Retrying)]) == 1
    done = [delta for delta in first if isinstance(delta, Done)][-1]
    assert done.refused_tools == ("mcp__s__bad",)
    assert done.warning.startswith("the tool mcp__s__bad is left out: ")


@pytest.mark.parametrize("wording", OTHERS)
def test_refusal_that_names_no_tool_of_the_request_removes_no_tool(wording: str) -> None:
    body = {"error": {"message": wording, "type": "invalid_request_error"}}

    async def main() -> list[list[str]]:
        async with open_wire("openai-chat", refusal(body)) as (provider, server):
            with pytest.raises(Exception, match="refused the request"):
                await stream_deltas(
                    ToolFallback(provider), request(message("user", "?"), tools=TOOLS)
                )
            return [list_offered_tools(item.body) for item in server.heard]

    assert anyio.run(main) == [list(NAMES)]


def test_provider_that_refuses_one_tool_after_another_is_given_up() -> None:
    many = tuple(ToolSpec(f"mcp__s__t{n}", "", ANY) for n in range(40))
    no = refusal({"error": {"message": "tools.0.custom.strict: not permitted"}})

    async def main() -> int:
        async with open_wire("anthropic", *[no] * 40) as (provider, server):
            with pytest.raises(ToolRefused):
                await stream_deltas(
                    ToolFallback(provider), request(message("user", "?"), tools=many)
                )
            return len(server.heard)

    assert anyio.run(main) == 21


def test_session_sends_a_refused_tool_to_its_model_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no = refusal(
        {"error": {"message": "Invalid schema for function 'bash': no.", "type": "x"}}
    )
    good = answer("openai-chat", Reply("Yes."))

    def make_agent() -> Agent:
        return Agent(model="openai-chat/m-1", directory=tmp_path, home=tmp_path / "home")

    async def use_session() -> tuple[
        list[tuple[str, ...]], list[bool], list[tuple[str, ...]]
    ]:
        async with wire_server(no, good, good, good) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing-0123456789")
            warnings = list[tuple[str, ...]]()
            async with make_agent().session() as session:
                for text in ("One.", "Two."):
                    warnings.append(tuple((await session.run(text)).warnings))
                id_ = session.id
            async with make_agent().session(id_) as session:  # a new start
                warnings.append(tuple((await session.run("Three.")).warnings))
                entries = await session.reports.entries()
            tools = [json.loads(item.body).get("tools", []) for item in server.heard]
            has_bash = [any(t["function"]["name"] == "bash" for t in one) for one in tools]
            events = [e.event for e in entries if isinstance(e.event, ModelAnswered)]
            return warnings, has_bash, [event.refused_tools for event in events]

    warnings, has_bash, recorded = anyio.run(use_session)

    assert has_bash == [True, False, False, False]
    assert recorded == [("bash",), (), ()]
    assert [len(one) for one in warnings] == [1, 0, 0]
