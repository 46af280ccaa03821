"""The embedded model is a provider like any other; only its server is its own."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.errors import Refused, Unreachable
from refold.provider.local.embedded import Embedded, stop_repetition
from refold.provider.local.models import DEFAULT_MODEL
from refold.provider.local.server import Address
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Provider,
    Request,
    Retrying,
    TextDelta,
)
from refold.testing.provider_conformance import ProviderContract
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, WireServer, wire_server
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text
from refold.values.tools import ToolSpec

LOOK = ToolSpec(
    "look", "look out", Raw(b'{"type":"object","properties":{"where":{"type":"string"}}}')
)
ASKED = Request(
    Log([StoredMessage(1, Message("user", (Text("Look up."),)))]),
    "Be brief.",
    (LOOK,),
    "ignored",
)


class Running:
    """A model's server that is a wire server.

    `starts` counts how often it was needed, `prefixes` has what each start was to read.
    With `dies` it is gone after the first request.
    """

    def __init__(self, url: str, *, why_not: str = "", dies: bool = False) -> None:
        self._url, self._why_not, self._dies = url, why_not, dies
        self.prefixes: list[str] = []
        self.running = False

    @property
    def starts(self) -> int:
        return len(self.prefixes)

    @asynccontextmanager
    async def lease(self, prefix: str = "") -> AsyncGenerator[Address, None]:
        if self._why_not:
            raise Refused(self._why_not)
        if not self.running:
            self.prefixes.append(prefix)
            self.running = True
        try:
            yield Address(self._url, "the-key")
        finally:
            self.running, self._dies = not self._dies, False


@asynccontextmanager
async def run_embedded(
    *replies: Reply,
) -> AsyncGenerator[tuple[Embedded, Running, WireServer], None]:
    answers = [answer("openai-chat", reply) for reply in replies]
    async with wire_server(*answers) as server:
        running = Running(server.url)
        async with aclosing(Embedded(DEFAULT_MODEL, running)) as provider:
            yield provider, running, server


async def read_deltas(provider: Provider, request: Request = ASKED) -> list[Delta]:
    async with aclosing(provider.stream(request)) as deltas:
        return [delta async for delta in deltas]


class TestEmbedded(ProviderContract):
    def scripted_provider(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        return self._running(*replies)

    @asynccontextmanager
    async def _running(self, *replies: Reply) -> AsyncGenerator[Provider, None]:
        async with run_embedded(*replies) as (provider, running, _):
            running.running = True
            yield provider


def test_embedded_model_answer_in_call_format_becomes_a_tool_call() -> None:
    async def main() -> list[Delta]:
        text = '{"tool": "look", "arguments": {"where": "up"}}'
        async with run_embedded(Reply(text)) as (provider, _, _):
            return await read_deltas(provider)

    deltas = anyio.run(main)

    calls = [d for d in deltas if isinstance(d, CallDelta)]
    assert calls[0].name == "look"
    assert "".join(d.arguments for d in calls) == '{"where": "up"}'
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].stop == "calls"


def test_first_token_of_the_embedded_model_is_reported_at_once() -> None:
    text = '{"tool": "finish", "arguments": {"answer": "It is 3."}}'

    async def main() -> list[Delta]:
        async with run_embedded(Reply(text)) as (provider, running, _):
            running.running = True
            return await read_deltas(provider)

    deltas = anyio.run(main)

    assert deltas[:2] == [TextDelta(""), TextDelta("It is 3.")]


def test_embedded_model_call_cut_off_by_the_output_limit_is_not_a_call() -> None:
    async def main() -> list[Delta]:
        reply = Reply('{"tool": "look", "arguments": {"where": "u', stop="length")
        async with run_embedded(reply) as (provider, _, _):
            return await read_deltas(provider)

    deltas = anyio.run(main)

    assert isinstance(deltas[-1], Done)
    assert deltas[-1].stop == "length"


def stream_text(text: str) -> tuple[str, list[str]]:
    """Return the deltas of a response of this text that arrives in small pieces, and how it
    stopped.
    """

    async def response() -> AsyncGenerator[Delta, None]:
        for start in range(0, len(text), 7):
            yield TextDelta(text[start : start + 7])
        yield Done()

    async def main() -> list[Delta]:
        return [delta async for delta in stop_repetition(response())]

    deltas = anyio.run(main)
    result = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    return result, [d.stop for d in deltas if isinstance(d, Done)]


@pytest.mark.parametrize(
    "piece", ["x", "echo apples >> fruit.txt; ", "a line\\n" * 9 + "b"]
)
def test_response_that_only_repeats_itself_is_cut_off(piece: str) -> None:
    text, stops = stream_text("first " + piece * 2_000)

    assert stops == ["length"]
    assert len(text) <= 6 + 64 + 7 + max(800, 6 * len(piece))


@pytest.mark.parametrize(
    "text",
    [
        "hello\\n" * 100,
        "".join(f"echo {n} >> n.txt; " for n in range(200)),
        "a line of a file, in full and rather long\\n" * 5 + "another" * 20,
    ],
)
def test_response_without_long_repetition_is_not_cut_off(text: str) -> None:
    assert stream_text(text) == (text, ["end"])


def test_model_server_starts_with_the_first_request_and_outlives_the_provider() -> None:
    async def main() -> tuple[list[Delta], list[Delta], Running]:
        reply = Reply('{"tool": "look", "arguments": {}}')
        async with run_embedded(reply, reply) as (provider, running, _):
            assert running.starts == 0
            first, second = await read_deltas(provider), await read_deltas(provider)
        return first, second, running

    first, second, running = anyio.run(main)

    assert first[0] == Retrying(0.0, f"loading {DEFAULT_MODEL.name}")
    assert not any(isinstance(d, Retrying) for d in second)
    assert (running.starts, running.running) == (1, True)


def test_model_server_is_started_with_the_prompt_prefix_shared_by_all_sessions() -> None:
    request = replace(ASKED, system="Be brief.\n\nYou work in: /home/me", shared=9)

    async def main() -> tuple[Running, WireServer]:
        async with run_embedded(Reply('{"tool": "look", "arguments": {}}')) as result:
            await read_deltas(result[0], request)
            return result[1:]

    running, server = anyio.run(main)

    (prefix,) = running.prefixes
    content = msgspec.json.decode(server.heard[0].body)["messages"][0]["content"]
    assert prefix.startswith("Be brief.\n\nReply with one JSON object")
    assert "- look(where): look out" in prefix
    assert content == f"{prefix}\n\nYou work in: /home/me"


CALL = '{"tool": "look", "arguments": {"where": "up"}}'


def cut_answer(reply: Reply) -> Answer:
    """Return what a server sends that dies in the middle of a response."""
    whole = answer("openai-chat", reply)
    assert isinstance(whole.body, bytes)
    events = whole.body.split(b"\n\n")
    half = b"\n\n".join(events[: len(events) * 2 // 3]) + b"\n\n"
    return replace(whole, body=half, then="cut")


def run_with_crash(second: Reply) -> tuple[list[Delta], Running]:
    """Return the deltas of a response of which a part arrived, and of the second one."""

    async def main() -> tuple[list[Delta], Running]:
        first = cut_answer(Reply(CALL))
        async with wire_server(first, answer("openai-chat", second)) as server:
            running = Running(server.url, dies=True)
            async with aclosing(Embedded(DEFAULT_MODEL, running)) as provider:
                return await read_deltas(provider), running

    return anyio.run(main)


def test_after_a_crash_the_server_is_started_again_and_the_response_continues() -> None:
    deltas, running = run_with_crash(Reply(CALL))

    calls = [d for d in deltas if isinstance(d, CallDelta)]
    waits = [d.reason for d in deltas if isinstance(d, Retrying)]
    assert "".join(d.name for d in calls) == "look"
    assert "".join(d.arguments for d in calls) == '{"where": "up"}'
    assert waits[1:] == [
        f"the server of {DEFAULT_MODEL.name} crashed; it is started again",
        f"loading {DEFAULT_MODEL.name}",
    ]
    assert running.starts == 2


def test_response_after_a_crash_that_begins_differently_is_an_error() -> None:
    with pytest.raises(Unreachable):
        run_with_crash(Reply('{"tool": "finish", "arguments": {"answer": "done"}}'))


def test_model_server_that_fails_to_start_raises_a_provider_error() -> None:
    async def main() -> None:
        await read_deltas(Embedded(DEFAULT_MODEL, Running("", why_not="no memory")))

    with pytest.raises(Refused, match="no memory"):
        anyio.run(main)


def test_embedded_model_request_carries_the_key_and_asks_for_exactly_one_call() -> None:
    async def main() -> WireServer:
        async with run_embedded(Reply('{"tool": "look", "arguments": {}}')) as (
            provider,
            _,
            server,
        ):
            await read_deltas(provider)
            return server

    (request,) = anyio.run(main).heard

    assert (request.path, request.headers["authorization"]) == (
        "/v1/chat/completions",
        "Bearer the-key",
    )
    body = msgspec.json.decode(request.body)
    shape = body.pop("response_format")["json_schema"]["schema"]
    assert [s["properties"]["tool"]["const"] for s in shape["anyOf"]] == ["look", "finish"]
    assert body.pop("messages")[1:] == [{"role": "user", "content": "Look up."}]
    assert body == {
        "temperature": 0,
        "cache_prompt": True,
        "model": DEFAULT_MODEL.name,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1024,
    }


def test_tool_with_plain_arguments_is_constrained_by_a_grammar() -> None:
    plain = (
        b'{"type":"object","properties":{"where":{"type":"string"}},"required":["where"]}'
    )
    request = replace(ASKED, tools=(ToolSpec("look", "look out", Raw(plain)),))

    async def main() -> WireServer:
        reply = Reply('{"tool": "look", "arguments": {"where": "up"}}')
        async with run_embedded(reply) as (provider, _, server):
            await read_deltas(provider, request)
            return server

    body = msgspec.json.decode(anyio.run(main).heard[0].body)
    assert body["grammar"].startswith(r'root ::= "{\"tool\": \"" ("look\", ')
    assert "response_format" not in body


IN_TEMPLATE = replace(DEFAULT_MODEL, calls_tools=True)


def test_larger_model_gets_tools_in_its_template_and_its_calls_are_read() -> None:
    async def converse() -> tuple[list[Delta], dict[str, Any], list[str]]:
        reply = Reply(calls=(("look", '{"where": "up"}'),))
        async with wire_server(answer("openai-chat", reply)) as server:
            running = Running(server.url)
            async with aclosing(Embedded(IN_TEMPLATE, running)) as provider:
                deltas = await read_deltas(provider, replace(ASKED, shared=5))
            return deltas, msgspec.json.decode(server.heard[0].body), running.prefixes

    deltas, body, prefixes = anyio.run(converse)

    assert [d.name for d in deltas if isinstance(d, CallDelta) and d.name] == ["look"]
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].stop == "calls"
    assert [tool["function"]["name"] for tool in body["tools"]] == ["look"]
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look up."},
    ]
    assert not {"grammar", "response_format", "temperature"} & set(body)
    assert prefixes == [""]


def test_crash_after_a_call_began_is_an_error_and_the_call_is_not_sent_twice() -> None:
    deltas = list[Delta]()

    async def collect(stream: AsyncIterator[Delta]) -> None:
        async for delta in stream:
            deltas.append(delta)

    async def converse() -> int:
        reply = Reply(calls=(("look", '{"where": "up"}'),))
        async with wire_server(cut_answer(reply), answer("openai-chat", reply)) as server:
            running = Running(server.url, dies=True)
            async with (
                aclosing(Embedded(IN_TEMPLATE, running)) as provider,
                aclosing(provider.stream(ASKED)) as stream,
            ):
                with pytest.raises(Unreachable):
                    await collect(stream)
            return running.starts

    starts = anyio.run(converse)

    assert starts == 1
    assert [d.name for d in deltas if isinstance(d, CallDelta) and d.name] == ["look"]
