"""Our client against LLMock, a third-party fault server."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from msgspec import Raw

from refold.errors import Overloaded, ProviderError, Refused, TooLong, Unreachable
from refold.provider.catalog import connect, find
from refold.provider.fallback import Fallback
from refold.provider.port import CallDelta, Delta, Dropped, Retrying
from refold.provider.retry import Backoff, RetryingProvider
from refold.testing.clock import Clock
from refold.values.tools import ToolSpec
from tests.provider.wires import message, request, stream_deltas, words

pytest.importorskip("llmock", reason="llmock is not installed")

pytestmark = [
    pytest.mark.peer,
    # Its server closes its sockets when the program ends, not when the test does.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

WIRES = ("anthropic", "openai", "openai-chat", "gemini")
# The last three speak Chat too, each as its own vendor does.
VENDORS = (*WIRES, "mistral", "groq", "xai")
QUICK = Backoff(first=0.3)
TOOL = ToolSpec(
    "look",
    "Look out of the window.",
    Raw(b'{"type":"object","properties":{"where":{"type":"string"}},"required":["where"]}'),
)


def environ(llmock: Any) -> dict[str, str]:
    """Return the environment variables by which our providers find the server."""
    env = dict(llmock.env())
    for name in ("mistral", "groq", "xai"):
        spec = find(name)
        env |= {spec.url_env: llmock.base_url(name), spec.key_env: "llmock-test-key"}
    return env


def read_answers(
    llmock: Any, name: str, *, idle: float = 5.0, times: int = 1
) -> list[list[Delta]]:
    """The answers to repeated requests; an error is an empty answer."""
    spec = find(name)

    async def main() -> list[list[Delta]]:
        provider = connect(spec, environ(llmock), idle=idle)
        patient = RetryingProvider(provider, QUICK, dice=lambda: 1.0)
        asking = request(message("user", "Rain?"), model="m-1", tools=(TOOL,))
        deltas: list[list[Delta]] = []
        for _ in range(times):
            try:
                deltas.append(await stream_deltas(patient, asking))
            except ProviderError:
                deltas.append([])
        await provider.aclose()
        return deltas

    return anyio.run(main)


def read_until_error(
    llmock: Any, name: str, *, idle: float
) -> tuple[list[Delta], ProviderError | None]:
    """Return the deltas before the error that ended the response."""
    received: list[Delta] = []

    async def main() -> ProviderError | None:
        provider = connect(find(name), environ(llmock), idle=idle)
        patient = RetryingProvider(provider, QUICK, dice=lambda: 1.0)
        asking = request(message("user", "Rain?"), model="m-1", tools=(TOOL,))
        async with aclosing(provider), aclosing(patient.stream(asking)) as deltas:
            try:
                async for delta in deltas:
                    received.append(delta)
            except ProviderError as error:
                return error
        return None

    return received, anyio.run(main)


def check_no_violations(llmock: Any) -> None:
    """Check that the server reports no violation, and only one doubt, which it cannot
    settle.

    After a corrupt chunk the server may not see in time that we have left.

    After a corrupt chunk it may not see in time that we have left.
    """
    llmock.assert_resilient()
    assert {w.code for w in llmock.verdict().warnings} <= {"malformed_chunk_ignored"}


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda m: m.rate_limit(times=2, retry_after=0.4), id="429"),
        pytest.param(lambda m: m.fail(529, times=2), id="529"),
        pytest.param(lambda m: m.fail(503, times=3), id="503"),
        pytest.param(lambda m: m.disconnect(after_chunks=0), id="dropped"),
        pytest.param(lambda m: m.truncate(after_chunks=0), id="cut"),
        pytest.param(lambda m: m.corrupt(after_chunks=0), id="corrupt"),
    ],
)
def test_temporary_failure_is_retried_until_an_answer(
    llmock: Any, name: str, fault: Callable[[Any], object]
) -> None:
    llmock.reply("No rain.", times=None)
    fault(llmock)

    (deltas,) = read_answers(llmock, name)

    assert any(isinstance(d, Retrying) for d in deltas)
    assert words(deltas) == "No rain."
    check_no_violations(llmock)


@pytest.mark.parametrize("name", VENDORS)
@pytest.mark.parametrize("kind", ["truncate", "disconnect", "corrupt"])
def test_incomplete_answer_is_dropped_and_requested_again(
    llmock: Any, name: str, kind: str
) -> None:
    llmock.reply("No rain at all, and none to come.", times=2)
    getattr(llmock, kind)(after_chunks=5)

    (deltas,) = read_answers(llmock, name)

    *_, whole = split_attempts(deltas)
    assert words(whole) == "No rain at all, and none to come."
    check_no_violations(llmock)


@pytest.mark.parametrize("name", VENDORS)
def test_stalled_stream_is_cut_off_at_each_attempt(llmock: Any, name: str) -> None:
    """Each attempt ends with the beginning of the response."""
    whole = "No rain at all, and none to come."
    llmock.stall(after_chunks=5, seconds=3, times=None).reply(whole, times=None)

    deltas, error = read_until_error(llmock, name, idle=0.3)

    texts = [words(attempt) for attempt in split_attempts(deltas)]
    assert all(whole.startswith(text) and text != whole for text in texts)
    assert any(texts)
    assert isinstance(error, Unreachable)
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("name", VENDORS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_permanent_failure_is_not_retried(llmock: Any, name: str, status: int) -> None:
    llmock.fail(status, times=None)

    assert read_answers(llmock, name) == [[]]

    assert len(llmock.requests) == 1
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("name", VENDORS)
def test_overflow_auth_and_overload_errors_have_their_types(llmock: Any, name: str) -> None:
    async def main() -> list[type[ProviderError]]:
        provider = connect(find(name), environ(llmock))
        error_types: list[type[ProviderError]] = []
        for fault in (
            lambda: llmock.context_overflow(),
            lambda: llmock.fail(401),
            lambda: llmock.rate_limit(),
        ):
            fault()
            with pytest.raises(ProviderError) as caught:
                await stream_deltas(
                    provider, request(message("user", f"Rain {len(error_types)}?"))
                )
            error_types.append(type(caught.value))
        await provider.aclose()
        return error_types

    assert anyio.run(main) == [TooLong, Refused, Overloaded]


@pytest.mark.parametrize("name", VENDORS)
def test_complete_calls_are_read_and_malformed_ones_do_not_crash(
    llmock: Any, name: str
) -> None:
    llmock.call_tool("look", {"where": "up"})
    (whole,) = read_answers(llmock, name)
    llmock.break_tool_call("malformed_arguments")
    (broken,) = read_answers(llmock, name)

    calls = [[d for d in deltas if isinstance(d, CallDelta)] for deltas in (whole, broken)]
    assert [c.name for c in calls[0] if c.name] == ["look"]
    assert "".join(c.arguments for c in calls[0]).replace(" ", "") == '{"where":"up"}'
    assert calls[1]
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("name", VENDORS)
def test_missing_first_token_ends_at_the_idle_timeout(llmock: Any, name: str) -> None:
    llmock.slow_first_token(1, times=None).reply("No rain.")

    assert read_answers(llmock, name, idle=0.2) == [[]]

    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("name", WIRES)
def test_outage_of_one_vendor_is_answered_by_another_without_repeated_waits(
    llmock: Any, name: str
) -> None:
    down = "gemini" if name == "anthropic" else "anthropic"
    llmock.outage(provider=down).reply("No rain.", times=None)

    async def main() -> list[list[Delta]]:
        links = [(f"{link}/m-1", make_connection(llmock, link)) for link in (down, name)]
        both = Fallback(links, clock=Clock())
        asking = request(message("user", "Rain?"), model="m-1", tools=(TOOL,))
        answers = [await stream_deltas(both, asking) for _ in range(3)]
        await both.aclose()
        return answers

    deltas = anyio.run(main)

    assert [words(f) for f in deltas] == ["No rain."] * 3
    assert [f[-1].by for f in deltas] == [f"{name}/m-1"] * 3  # type: ignore[union-attr]
    waited = [[d.wait for d in f if isinstance(d, Retrying)] for f in deltas]
    assert [len(w) for w in waited] == [4, 0, 0]  # some more tries, then the other one
    check_no_violations(llmock)


def split_attempts(all_deltas: list[Delta]) -> list[list[Delta]]:
    """Return the deltas of each attempt, the last one's last."""
    deltas: list[list[Delta]] = [[]]
    for delta in all_deltas:
        if isinstance(delta, Dropped):
            deltas.append([])
        else:
            deltas[-1].append(delta)
    return deltas


def make_connection(llmock: Any, name: str) -> Callable[[], RetryingProvider]:
    def make() -> RetryingProvider:
        provider = connect(find(name), environ(llmock))
        return RetryingProvider(provider, Backoff(retries=1, first=0.1))

    return make
