"""The providers' own clients as oracles: they read our streams as our wires do.

What we let a server say in tests is not only what we think a provider says.
"""

from contextlib import AsyncExitStack
from typing import Any

import anyio
import msgspec
import pytest
from wires import KEY, heard, message, request

from refold.provider.catalog import connect, find
from refold.provider.port import CallDelta, Delta, Done, TextDelta, ThinkingDelta
from refold.testing.scripted import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, WireServer, wire_server
from refold.values.usage import Usage

pytestmark = pytest.mark.peer

REPLY = Reply(
    "Let me look. ☂",
    (("look", '{"where":"up ☁"}'), ("book", "{}")),
    thinking="Clouds?",
    usage=Usage(fresh=7, cached=100, cache_write=20, output=30, reasoning=4),
)
Found = tuple[str, str, list[tuple[str, Any]], int]  # thinking, text, calls, output tokens


def ours(wire: WireName) -> Found:
    spec = find(wire)

    async def use(server: WireServer) -> list[Delta]:
        environ = {spec.key_env: KEY, spec.url_env: server.url}
        provider = connect(spec, environ)
        found = await heard(provider, request(message("user", "?")))
        await provider.aclose()
        return found

    shown = [Answer(b"{}")] if wire == "ollama" else []
    found = anyio.run(_serving, use, *shown, answer(wire, REPLY))
    calls = dict[int, list[str]]()
    for delta in found:
        if isinstance(delta, CallDelta):
            call = calls.setdefault(delta.index, [delta.name, ""])
            call[1] += delta.arguments
    done = found[-1]
    assert isinstance(done, Done)
    return (
        "".join(d.text for d in found if isinstance(d, ThinkingDelta)),
        "".join(d.text for d in found if isinstance(d, TextDelta)),
        [(name, msgspec.json.decode(arguments)) for name, arguments in calls.values()],
        done.usage.output,
    )


async def _serving(use: Any, *answers: Answer) -> Any:
    async with wire_server(*answers) as server:
        return await use(server)


def test_anthropics_client_reads_what_our_wire_reads() -> None:
    anthropic = pytest.importorskip("anthropic", reason="its SDK is not installed")

    async def use(server: WireServer) -> Found:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY)
            )
            asked = {"role": "user", "content": "?"}
            opening = client.messages.stream(model="m", max_tokens=9, messages=[asked])
            found = await (await stack.enter_async_context(opening)).get_final_message()
        kinds = {b.type: b for b in found.content}
        calls = [(b.name, b.input) for b in found.content if b.type == "tool_use"]
        assert found.usage.input_tokens == 7
        assert found.usage.cache_read_input_tokens == 100
        assert found.stop_reason == "tool_use"
        return (
            kinds["thinking"].thinking, kinds["text"].text, calls, found.usage.output_tokens,
        )  # fmt: skip

    assert anyio.run(_serving, use, answer("anthropic", REPLY)) == ours("anthropic")


def test_openais_client_reads_what_our_wire_reads() -> None:
    openai = pytest.importorskip("openai", reason="its SDK is not installed")

    async def use(server: WireServer) -> Found:
        thought, said, output, calls = "", "", 0, dict[int, list[str]]()
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
                    said += choice.delta.content or ""
                    for piece in choice.delta.tool_calls or ():
                        call = calls.setdefault(piece.index, ["", ""])
                        call[0] += piece.function.name or ""
                        call[1] += piece.function.arguments or ""
        decoded = [(name, msgspec.json.decode(a)) for name, a in calls.values()]
        return thought, said, decoded, output

    assert anyio.run(_serving, use, answer("openai-chat", REPLY)) == ours("openai-chat")


def test_ollamas_client_reads_what_our_wire_reads() -> None:
    ollama = pytest.importorskip("ollama", reason="its SDK is not installed")

    async def use(server: WireServer) -> Found:
        thought, said, output, calls = "", "", 0, list[tuple[str, Any]]()
        client = ollama.AsyncClient(host=server.url)
        async for part in await client.chat(
            model="m", messages=[{"role": "user", "content": "?"}], stream=True
        ):
            thought += part.message.thinking or ""
            said += part.message.content or ""
            calls += [
                (c.function.name, dict(c.function.arguments))
                for c in part.message.tool_calls or ()
            ]
            output = part.eval_count or output
        await client.close()
        return thought, said, calls, output

    assert anyio.run(_serving, use, answer("ollama", REPLY)) == ours("ollama")
