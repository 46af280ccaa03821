"""The official SDKs as references: they read our streams as our wires do.

So the streams of our test servers are not only what we believe a provider sends.
"""

from base64 import b64decode
from contextlib import AsyncExitStack
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.provider.catalog import connect
from refold.provider.port import CallDelta, Delta, Done, TextDelta, ThinkingDelta
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, WireServer, wire_server
from refold.values.messages import ToolCall, ToolResult
from refold.values.usage import Usage
from tests.provider.wires import (
    CAT,
    CONVERSATION,
    KEY,
    PICTURES,
    TOOLS,
    message,
    request,
    request_body,
    spec_of,
    stream_deltas,
)

pytestmark = pytest.mark.peer

REPLY = Reply(
    "Let me look. ☂",
    (("look", '{"where":"up ☁"}'), ("book", "{}")),
    thinking="Clouds?",
    usage=Usage(fresh=7, cached=100, cache_write=20, output=30, reasoning=4),
)
Found = tuple[str, str, list[tuple[str, Any]], int]  # thinking, text, calls, output tokens


def our_answer(wire: WireName) -> Found:
    spec = spec_of(wire)

    async def call_sdk(server: WireServer) -> list[Delta]:
        environ = {spec.key_env: KEY, spec.url_env: server.url}
        provider = connect(spec, environ)
        deltas = await stream_deltas(provider, request(message("user", "?")))
        await provider.aclose()
        return deltas

    answers = [Answer(b"{}")] if wire == "ollama" else []
    serving = anyio.run(_run_with_server, call_sdk, *answers, answer(wire, REPLY))
    calls = dict[int, list[str]]()
    for delta in serving:
        if isinstance(delta, CallDelta):
            call = calls.setdefault(delta.index, [delta.name, ""])
            call[1] += delta.arguments
    done = serving[-1]
    assert isinstance(done, Done)
    return (
        "".join(d.text for d in serving if isinstance(d, ThinkingDelta)),
        "".join(d.text for d in serving if isinstance(d, TextDelta)),
        [(name, msgspec.json.decode(arguments)) for name, arguments in calls.values()],
        done.usage.output,
    )


async def _run_with_server(function: Any, *answers: Answer) -> Any:
    async with wire_server(*answers) as server:
        return await function(server)


def test_anthropic_client_reads_the_stream_as_our_wire_does() -> None:
    anthropic = pytest.importorskip("anthropic", reason="its SDK is not installed")

    async def call_sdk(server: WireServer) -> Found:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY)
            )
            data = {"role": "user", "content": "?"}
            opening = client.messages.stream(model="m", max_tokens=9, messages=[data])
            final_message = await (
                await stack.enter_async_context(opening)
            ).get_final_message()
        kinds = {b.type: b for b in final_message.content}
        calls = [(b.name, b.input) for b in final_message.content if b.type == "tool_use"]
        assert final_message.usage.input_tokens == 7
        assert final_message.usage.cache_read_input_tokens == 100
        assert final_message.stop_reason == "tool_use"
        return (
            kinds["thinking"].thinking, kinds["text"].text, calls, final_message.usage.output_tokens,
        )  # fmt: skip

    assert anyio.run(_run_with_server, call_sdk, answer("anthropic", REPLY)) == our_answer(
        "anthropic"
    )


def test_openai_client_reads_the_stream_as_our_wire_does() -> None:
    openai = pytest.importorskip("openai", reason="its SDK is not installed")

    async def call_sdk(server: WireServer) -> Found:
        thought, text, output, calls = "", "", 0, dict[int, list[str]]()
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY) as client:
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "?"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in stream:
                if chunk.usage:
                    output = chunk.usage.completion_tokens
                    assert chunk.usage.prompt_tokens == 127
                    assert chunk.usage.prompt_tokens_details.cached_tokens == 100
                for choice in chunk.choices:
                    thought += getattr(choice.delta, "reasoning_content", None) or ""
                    text += choice.delta.content or ""
                    for piece in choice.delta.tool_calls or ():
                        call = calls.setdefault(piece.index, ["", ""])
                        call[0] += piece.function.name or ""
                        call[1] += piece.function.arguments or ""
        decoded = [(name, msgspec.json.decode(a)) for name, a in calls.values()]
        return thought, text, decoded, output

    assert anyio.run(
        _run_with_server, call_sdk, answer("openai-chat", REPLY)
    ) == our_answer("openai-chat")


def test_openai_client_reads_response_items_as_our_wire_does() -> None:
    openai = pytest.importorskip("openai", reason="its SDK is not installed")

    async def call_sdk(server: WireServer) -> Found:
        client = openai.AsyncOpenAI(base_url=server.url, api_key=KEY)
        async with client, client.responses.stream(model="m", input="?") as stream:
            final_response = await stream.get_final_response()
        items = {item.type: item for item in final_response.output}
        calls = [i for i in final_response.output if i.type == "function_call"]
        assert final_response.usage.input_tokens == 127
        assert final_response.usage.input_tokens_details.cached_tokens == 100
        assert items["reasoning"].encrypted_content
        return (
            items["reasoning"].summary[0].text,
            final_response.output_text,
            [(call.name, msgspec.json.decode(call.arguments)) for call in calls],
            final_response.usage.output_tokens,
        )

    served = answer("openai-responses", REPLY)
    assert anyio.run(_run_with_server, call_sdk, served) == our_answer("openai-responses")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_google_client_reads_the_stream_as_our_wire_does() -> None:
    genai = pytest.importorskip("google.genai", reason="its SDK is not installed")

    async def call_sdk(server: WireServer) -> Found:
        thought, text, output, calls = "", "", 0, list[tuple[str, Any]]()
        options = genai.types.HttpOptions(base_url=server.url, api_version="v1beta")
        client = genai.Client(api_key=KEY, http_options=options)
        stream = await client.aio.models.generate_content_stream(model="m", contents="?")
        async for chunk in stream:
            for part in chunk.candidates[0].content.parts or ():
                if part.function_call:
                    calls.append((part.function_call.name, part.function_call.args))
                    assert bool(part.thought_signature) == (len(calls) == 1)
                elif part.thought:
                    thought += part.text
                else:
                    text += part.text or ""
            used = chunk.usage_metadata
            assert used.prompt_token_count == 127
            output = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
        await client.aio.aclose()
        client.close()
        assert server.heard[0].path == "/v1beta/models/m:streamGenerateContent?alt=sse"
        assert server.heard[0].headers["x-goog-api-key"] == KEY
        return thought, text, calls, output

    assert anyio.run(_run_with_server, call_sdk, answer("gemini", REPLY)) == our_answer(
        "gemini"
    )


# The SDKs would send these as well: images, effort and a schema.

SCHEMA = Raw(b'{"type":"object","properties":{"rain":{"type":"boolean"}}}')
TALK = (
    message("user", "What is", CAT),
    message("assistant", ToolCall("call-1", "look", Raw(b"{}"))),
    message("tool", ToolResult("call-1", "a cat", images=(CAT,))),
)
MORE: dict[str, Any] = {
    "pictures": PICTURES,
    "schema": SCHEMA,
    "session": "s-1",
    "tools": TOOLS,
}


def field_types(shape: Any) -> set[str]:
    """Return the fields of a typed dictionary, its parents' too."""
    from typing import get_type_hints

    return set(get_type_hints(shape, include_extras=True))


def validate(shape: Any, body: dict[str, Any]) -> None:
    """Whether it has the shape, all the way down.

    What a client takes as any iterable is validated only when it is read, which does not
    happen here; so those are lists.
    """
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    def validate_at_once(schema: Any) -> Any:
        match schema:
            case {"type": "generator", **more}:
                return {"type": "list", **validate_at_once(more)}
            case dict():
                return {name: validate_at_once(inner) for name, inner in schema.items()}
            case list() | tuple():
                return [validate_at_once(inner) for inner in schema]
            case _:
                return schema

    SchemaValidator(validate_at_once(TypeAdapter(shape).core_schema)).validate_python(body)


@pytest.mark.parametrize("effort", ["", "low", "medium", "high", "max"])
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-sonnet-5-5"])
@pytest.mark.parametrize("conversation", [CONVERSATION, TALK], ids=["words", "pictures"])
def test_anthropic_request_has_the_types_of_its_sdk(
    conversation: Any, model: str, effort: str
) -> None:
    params = pytest.importorskip("anthropic.types.message_create_params", reason="no SDK")

    model_request = request(
        *conversation, system="Be brief.", model=model, effort=effort, **MORE
    )
    body = request_body("anthropic", model_request)

    shape = params.MessageCreateParamsStreaming
    validate(shape, body)
    assert set(body) <= field_types(shape)
    assert str(body).count("'cache_control'") <= 4


@pytest.mark.parametrize("conversation", [CONVERSATION, TALK], ids=["words", "pictures"])
def test_gemini_request_equals_that_of_the_google_client(conversation: Any) -> None:
    genai = pytest.importorskip("google.genai", reason="its SDK is not installed")

    model_request = request(
        *conversation, effort="max", tool_choice="none", model="gemini-3", **MORE
    )
    body = request_body("gemini", model_request)

    contents = [genai.types.Content.model_validate(c) for c in body["contents"]]
    tools = [genai.types.Tool.model_validate(t) for t in body["tools"]]
    config = genai.types.GenerationConfig.model_validate(body["generationConfig"])
    choice = genai.types.ToolConfig.model_validate(body["toolConfig"])
    again = [c.model_dump(mode="json", by_alias=True, exclude_none=True) for c in contents]
    assert again == body["contents"]
    assert tools[0].function_declarations[1].parameters_json_schema
    assert config.thinking_config.include_thoughts
    assert config.thinking_config.thinking_level is genai.types.ThinkingLevel.XHIGH
    assert config.response_json_schema == msgspec.json.decode(SCHEMA)
    assert choice.function_calling_config.mode == "NONE"


@pytest.mark.parametrize("effort", ["", "low", "medium", "high", "max"])
@pytest.mark.parametrize("conversation", [CONVERSATION, TALK], ids=["words", "pictures"])
def test_openai_request_has_the_types_of_its_sdk(conversation: Any, effort: str) -> None:
    responses = pytest.importorskip("openai.types.responses", reason="no SDK of theirs")

    body = request_body("openai-responses", request(*conversation, effort=effort, **MORE))

    shape = responses.response_create_params.ResponseCreateParamsStreaming
    validate(shape, body)
    known = set(shape.__annotations__) | set(
        responses.response_create_params.ResponseCreateParamsBase.__annotations__
    )
    assert set(body) <= known


@pytest.mark.parametrize("effort", ["", "low", "medium", "high", "max"])
@pytest.mark.parametrize("conversation", [CONVERSATION, TALK], ids=["words", "pictures"])
def test_chat_request_has_the_types_of_the_sdk_of_openai(
    conversation: Any, effort: str
) -> None:
    params = pytest.importorskip(
        "openai.types.chat.completion_create_params", reason="no SDK"
    )

    model_request = request(*conversation, effort=effort, max_output=9, **MORE)
    there = replace(spec_of("openai-chat"), url_env="")  # not another server in its place
    body = request_body("openai-chat", model_request, spec=there)

    shape = params.CompletionCreateParamsStreaming
    validate(shape, body)
    assert set(body) <= field_types(shape)
    assert {"response_format", "prompt_cache_key", "max_completion_tokens"} <= set(body)


@pytest.mark.parametrize(("text", "shown"), [(CONVERSATION, 0), (TALK, 2)])
def test_ollama_request_equals_that_of_its_client(text: Any, shown: int) -> None:
    types = pytest.importorskip("ollama._types", reason="its SDK is not installed")

    model_request = request(*text, effort="max", tool_choice="none", **MORE)
    body = request_body("ollama", model_request)

    model_validate = types.ChatRequest.model_validate(body)
    assert model_validate.think is True
    assert model_validate.format == msgspec.json.decode(SCHEMA)
    conversation = [
        types.Message(**{**m, "images": _images(types, m)}) for m in body["messages"]
    ]
    again = [m.model_dump(exclude_none=True) for m in conversation]
    images = [image for m in again for image in m.get("images", ())]
    assert [m["content"] for m in again] == [m["content"] for m in body["messages"]]
    assert images == ["iVBORyBjYXQ="] * shown


def _images(types: Any, message: dict[str, Any]) -> Any:
    images = [types.Image(value=b64decode(image)) for image in message.get("images", ())]
    return images or None


def test_ollama_client_reads_the_stream_as_our_wire_does() -> None:
    ollama = pytest.importorskip("ollama", reason="its SDK is not installed")

    async def call_sdk(server: WireServer) -> Found:
        thought, text, output, calls = "", "", 0, list[tuple[str, Any]]()
        client = ollama.AsyncClient(host=server.url)
        async for part in await client.chat(
            model="m", messages=[{"role": "user", "content": "?"}], stream=True
        ):
            thought += part.message.thinking or ""
            text += part.message.content or ""
            calls += [
                (c.function.name, dict(c.function.arguments))
                for c in part.message.tool_calls or ()
            ]
            output = part.eval_count or output
        await client.close()
        return thought, text, calls, output

    assert anyio.run(_run_with_server, call_sdk, answer("ollama", REPLY)) == our_answer(
        "ollama"
    )
