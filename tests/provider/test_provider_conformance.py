"""The contract of a provider, kept by our five wires and by the scripted one."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

from refold.provider.catalog import connect
from refold.provider.port import Provider
from refold.provider.retry import RetryingProvider
from refold.testing.provider_conformance import ProviderContract
from refold.testing.providers import Reply, ScriptedProvider
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, wire_server
from tests.provider.wires import spec_of


@asynccontextmanager
async def open_provider(wire: WireName, *replies: Reply) -> AsyncGenerator[Provider, None]:
    """Yield a real client, and a server that gives these answers."""
    answers = [answer(wire, reply) for reply in replies]
    result = [Answer(b"{}")] if wire == "ollama" else []
    spec = spec_of(wire)
    async with wire_server(*result, *answers) as server:  # noqa: SIM117 needs its url
        async with aclosing(connect(spec, {spec.url_env: server.url})) as provider:
            if wire == "ollama":  # the window is asked for once, before anything else
                await provider.window("")  # type: ignore[attr-defined]
            yield provider


class TestAnthropic(ProviderContract):
    def scripted_provider(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        return open_provider("anthropic", *replies)


class TestOpenAIResponses(ProviderContract):
    def scripted_provider(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        return open_provider("openai-responses", *replies)


class TestGemini(ProviderContract):
    def scripted_provider(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        return open_provider("gemini", *replies)


class TestOpenAIChat(ProviderContract):
    def scripted_provider(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        return open_provider("openai-chat", *replies)


class TestOllama(ProviderContract):
    def scripted_provider(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        return open_provider("ollama", *replies)


class TestScripted(ProviderContract):
    @asynccontextmanager
    async def scripted_provider(self, *replies: Reply) -> AsyncGenerator[Provider, None]:
        yield ScriptedProvider(*replies)


class TestAnyOfThemWithPatience(ProviderContract):
    @asynccontextmanager
    async def scripted_provider(self, *replies: Reply) -> AsyncGenerator[Provider, None]:
        async def at_once(_: float) -> None:
            return

        async with open_provider("anthropic", *replies) as provider:
            yield RetryingProvider(provider, sleep=at_once)
