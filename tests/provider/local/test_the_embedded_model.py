"""The embedded model is a provider like any other; only its server is its own."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import anyio
import msgspec
import pytest
from msgspec import Raw

from refold.errors import Refused
from refold.provider.local.embedded import Embedded
from refold.provider.local.models import DEFAULT
from refold.provider.local.server import Address
from refold.provider.port import CallDelta, Delta, Done, Provider, Request, Retrying
from refold.testing.provider_conformance import ProviderContract
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import WireServer, wire_server
from refold.values.growing import Log
from refold.values.messages import Message, Spoken, Text
from refold.values.tools import ToolSpec

LOOK = ToolSpec(
    "look", "look out", Raw(b'{"type":"object","properties":{"where":{"type":"string"}}}')
)
ASKED = Request(
    Log([Spoken(1, Message("user", (Text("Look up."),)))]), "Be brief.", (LOOK,), "ignored"
)


class Running:
    """A model's server that is a wire server; `starts` counts how often it was needed."""

    def __init__(self, url: str, *, why_not: str = "") -> None:
        self._url, self._why_not = url, why_not
        self.starts = self.stops = 0
        self.running = False

    async def start(self) -> Address:
        if self._why_not:
            raise Refused(self._why_not)
        self.starts += not self.running
        self.running = True
        return Address(self._url, "the-key")

    async def stop(self) -> None:
        self.stops += 1
        self.running = False


@asynccontextmanager
async def embedded(
    *replies: Reply,
) -> AsyncGenerator[tuple[Embedded, Running, WireServer], None]:
    answers = [answer("openai-chat", reply) for reply in replies]
    async with wire_server(*answers) as server:
        running = Running(server.url)
        async with aclosing(Embedded(DEFAULT, running)) as provider:
            yield provider, running, server


async def heard(provider: Provider, asked: Request = ASKED) -> list[Delta]:
    async with aclosing(provider.stream(asked)) as deltas:
        return [delta async for delta in deltas]


class TestEmbedded(ProviderContract):
    def saying(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        return self._running(*replies)

    @asynccontextmanager
    async def _running(self, *replies: Reply) -> AsyncGenerator[Provider, None]:
        async with embedded(*replies) as (provider, running, _):
            await running.start()
            yield provider


def test_an_answer_in_its_protocol_is_a_call() -> None:
    async def use() -> list[Delta]:
        said = '{"tool": "look", "arguments": {"where": "up"}}'
        async with embedded(Reply(said)) as (provider, _, _):
            return await heard(provider)

    found = anyio.run(use)

    calls = [d for d in found if isinstance(d, CallDelta)]
    assert calls[0].name == "look"
    assert "".join(d.arguments for d in calls) == '{"where": "up"}'
    assert isinstance(found[-1], Done)
    assert found[-1].stop == "calls"


def test_a_call_cut_off_by_the_limit_is_no_call() -> None:
    async def use() -> list[Delta]:
        said = Reply('{"tool": "look", "arguments": {"where": "u', stop="length")
        async with embedded(said) as (provider, _, _):
            return await heard(provider)

    found = anyio.run(use)

    assert isinstance(found[-1], Done)
    assert found[-1].stop == "length"


def test_the_server_starts_with_the_first_request_and_ends_with_the_provider() -> None:
    async def use() -> tuple[list[Delta], list[Delta], Running]:
        said = Reply('{"tool": "look", "arguments": {}}')
        async with embedded(said, said) as (provider, running, _):
            assert running.starts == 0
            first, second = await heard(provider), await heard(provider)
        return first, second, running

    first, second, running = anyio.run(use)

    assert first[0] == Retrying(0.0, f"loading {DEFAULT.name}")
    assert not any(isinstance(d, Retrying) for d in second)
    assert (running.starts, running.stops) == (1, 1)


def test_a_server_that_does_not_start_is_a_provider_s_error() -> None:
    async def use() -> None:
        await heard(Embedded(DEFAULT, Running("", why_not="no memory")))

    with pytest.raises(Refused, match="no memory"):
        anyio.run(use)


def test_it_is_asked_with_its_key_for_a_call_and_nothing_else() -> None:
    async def use() -> WireServer:
        async with embedded(Reply('{"tool": "look", "arguments": {}}')) as (
            provider,
            _,
            server,
        ):
            await heard(provider)
            return server

    (asked,) = anyio.run(use).heard

    assert (asked.path, asked.headers["authorization"]) == (
        "/v1/chat/completions",
        "Bearer the-key",
    )
    body = msgspec.json.decode(asked.body)
    shape = body.pop("response_format")["json_schema"]["schema"]
    assert [s["properties"]["tool"]["const"] for s in shape["anyOf"]] == ["look", "finish"]
    assert body.pop("messages")[1:] == [{"role": "user", "content": "Look up."}]
    assert body == {
        "temperature": 0,
        "cache_prompt": True,
        "model": DEFAULT.name,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1024,
    }
