"""When a retrying provider tries again, how long it waits, and when it does not."""

from collections.abc import AsyncGenerator, Callable

import anyio
import pytest

from refold.errors import Overloaded, ProviderError, Refused, TooLong, Unreachable
from refold.provider.error_mapping import Peer, ResponseStart, failure, retry_after
from refold.provider.port import (
    Delta,
    Done,
    Dropped,
    HostedCall,
    Provider,
    Request,
    RequestSent,
    ResponseBytes,
    Retrying,
    TextDelta,
)
from refold.provider.retry import Backoff, RetryingProvider
from refold.testing.providers import FaultyProvider, Reply, ScriptedProvider
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer
from tests.provider.wires import message, open_wire, request, stream_deltas, words

BUSY = Answer(
    b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', 529
)


class Waits:
    """A clock without real waiting."""

    def __init__(self) -> None:
        self.waited = list[float]()

    async def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        await anyio.lowlevel.checkpoint()


def make_retrying_provider(
    inner: Provider, waits: Waits | None = None, dice: Callable[[], float] = lambda: 1.0
) -> RetryingProvider:
    return RetryingProvider(inner, sleep=waits or Waits(), dice=dice)


def read_deltas(provider: Provider) -> list[Delta]:
    return anyio.run(stream_deltas, provider)


def test_provider_that_recovers_answers_after_retry_notices_and_backoff() -> None:
    waits = Waits()
    inner = FaultyProvider("Yes", fault=Overloaded("busy"), times=3)

    deltas = read_deltas(make_retrying_provider(inner, waits))

    assert [d for d in deltas if isinstance(d, Retrying)] == [
        Retrying(1.0, "busy", 2, 4), Retrying(2.0, "busy", 3, 4), Retrying(4.0, "busy", 4, 4),
    ]  # fmt: skip
    assert words(deltas) == "Yes"
    assert waits.waited == [1.0, 2.0, 4.0]


def test_last_error_is_raised_when_retries_are_exhausted() -> None:
    inner = FaultyProvider("Yes", fault=Unreachable("gone"), times=9)

    with pytest.raises(Unreachable, match="gone"):
        read_deltas(make_retrying_provider(inner))

    assert len(inner.heard) == 4


@pytest.mark.parametrize(
    "fault", [Refused("no"), TooLong("too long"), ProviderError("odd")]
)
def test_permanent_error_is_not_retried(fault: ProviderError) -> None:
    inner = FaultyProvider("Yes", fault=fault)

    with pytest.raises(type(fault)):
        read_deltas(make_retrying_provider(inner))

    assert len(inner.heard) == 1


@pytest.mark.parametrize(
    "line",
    ["Yes", [("look", "{}")], Reply("Yes", thinking="Hm")],
    ids=["words", "call", "thought"],
)
@pytest.mark.parametrize("fault", [Overloaded("busy", overload=True), Unreachable("reset")])
def test_retry_drops_a_response_that_failed_in_the_middle(
    line: str | list[tuple[str, str]] | Reply, fault: ProviderError
) -> None:
    inner = FaultyProvider(line, fault=fault, after=1)

    deltas = read_deltas(make_retrying_provider(inner))

    index = deltas.index(Dropped(str(fault), type(fault).__name__))
    assert index == 1
    assert isinstance(deltas[2], Retrying)
    whole = read_deltas(FaultyProvider(line, fault=fault, times=0))
    assert [type(d) for d in deltas[3:]] == [type(d) for d in whole]
    assert (words(deltas[3:]), deltas[-1]) == (words(whole), whole[-1])


def test_retry_stops_once_the_provider_has_called_a_tool_itself() -> None:
    class Hosting:
        heard = 0

        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            self.heard += 1
            yield HostedCall("1", "mcp__mail__send")
            raise Unreachable("reset")

    inner = Hosting()

    with pytest.raises(Unreachable, match="reset"):
        read_deltas(make_retrying_provider(inner))

    assert inner.heard == 1


def test_retry_after_an_overload_makes_ten_attempts_and_counts_them() -> None:
    waits, deltas = Waits(), list[Delta]()
    inner = FaultyProvider("Yes", fault=Overloaded("busy", overload=True), times=99)

    async def main() -> None:
        async for delta in make_retrying_provider(inner, waits).stream(
            request(message("user", "?"))
        ):
            deltas.append(delta)

    with pytest.raises(Overloaded):
        anyio.run(main)

    counts = [(d.attempt, d.attempts) for d in deltas if isinstance(d, Retrying)]
    assert counts == [(n, 10) for n in range(2, 11)]
    assert waits.waited == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize(("fallback", "attempts"), [(False, 10), (True, 4)])
def test_network_lost_after_an_answer_gets_ten_attempts_unless_another_model_waits(
    fallback: bool, attempts: int
) -> None:
    lost = [Unreachable("no route")] * (attempts - 1)
    provider = RetryingProvider(
        ScriptedProvider("One", *lost, "Two"), Backoff(fallback=fallback), sleep=Waits()
    )
    read_deltas(provider)

    deltas = read_deltas(provider)

    assert words(deltas) == "Two"
    assert {d.attempts for d in deltas if isinstance(d, Retrying)} == {attempts}


def test_retry_limits_overloads_and_other_failures_separately() -> None:
    faults = [Overloaded("busy", overload=True)] * 9 + [Unreachable("reset")] * 3
    script = ScriptedProvider(*faults, "Yes")

    assert words(read_deltas(make_retrying_provider(script))) == "Yes"


def test_retries_after_an_overload_never_end_if_the_caller_limits_the_time() -> None:
    inner = FaultyProvider("Yes", fault=Overloaded("busy", overload=True), times=40)
    provider = RetryingProvider(inner, Backoff(endless=True), sleep=Waits())

    deltas = read_deltas(provider)

    assert words(deltas) == "Yes"
    assert {d.attempts for d in deltas if isinstance(d, Retrying)} == {0}


def test_retry_waits_a_little_longer_than_the_provider_asks() -> None:
    waits = Waits()
    inner = FaultyProvider("Yes", fault=Overloaded("busy", retry_after=7), times=2)

    read_deltas(make_retrying_provider(inner, waits, lambda: 0.5))

    assert waits.waited == [7.5, 8.0]


def test_rate_limit_without_a_time_waits_with_growing_backoff() -> None:
    longest, shortest = Waits(), Waits()
    for waits, dice in ((longest, 1.0), (shortest, 0.0)):
        fault = Overloaded("rate limit reached", limited=True)
        inner = FaultyProvider("Yes", fault=fault, times=3)

        assert (
            words(read_deltas(make_retrying_provider(inner, waits, lambda dice=dice: dice)))
            == "Yes"
        )

    assert longest.waited == [8.0, 16.0, 32.0]
    assert shortest.waited == [4.0, 8.0, 16.0]


def test_rate_limit_with_a_time_waits_that_time_and_a_little_more() -> None:
    waits = Waits()
    fault = Overloaded("rate limit reached", retry_after=3, limited=True)

    read_deltas(make_retrying_provider(FaultyProvider("Yes", fault=fault, times=1), waits))

    assert waits.waited == [4.0]


def test_only_the_status_429_is_a_rate_limit() -> None:
    peer = Peer("P", "https://p.test", "P_KEY")
    data = {status: failure(peer, ResponseStart(status)) for status in (429, 503, 529)}

    limited = {s: isinstance(e, Overloaded) and e.limited for s, e in data.items()}
    assert limited == {429: True, 503: False, 529: False}


def test_retry_wait_has_a_minimum_and_a_maximum() -> None:
    assert Backoff().wait_seconds(0, wanted_seconds=0, dice=0.0) == 0.1
    assert Backoff().wait_seconds(9, wanted_seconds=0, dice=1.0) == 60.0


def test_requested_wait_of_an_hour_is_raised_and_not_waited() -> None:
    waits = Waits()
    inner = FaultyProvider("Yes", fault=Overloaded("busy", retry_after=3600))

    with pytest.raises(Overloaded, match="it asks for a wait of 60 minutes") as caught:
        read_deltas(make_retrying_provider(inner, waits))

    assert (waits.waited, caught.value.retry_after) == ([], 3600)


def test_a_cancelled_wait_for_a_retry_sends_no_further_request() -> None:
    inner = FaultyProvider("Yes", fault=Overloaded("busy", retry_after=50))

    async def main() -> None:
        with anyio.move_on_after(0.02):
            await stream_deltas(RetryingProvider(inner))

    anyio.run(main)

    assert len(inner.heard) == 1


def test_response_without_done_is_not_retried() -> None:
    deltas = read_deltas(
        make_retrying_provider(FaultyProvider("Yes", fault="silence", after=2))
    )

    assert deltas == [TextDelta("Y"), TextDelta("e")]


def test_busy_server_is_sent_the_identical_request_again() -> None:
    waits = Waits()

    async def main() -> tuple[str, set[bytes], int]:
        limited = Answer(b"{}", 429, {"retry-after": "2"})
        good = answer("anthropic", Reply("Yes."))
        async with open_wire("anthropic", limited, BUSY, BUSY, good) as (provider, server):
            deltas = await stream_deltas(make_retrying_provider(provider, waits))
            return words(deltas), {h.body for h in server.heard}, len(server.heard)

    text, bodies, times = anyio.run(main)

    assert (text, len(bodies), times) == ("Yes.", 1, 4)
    assert waits.waited == [3.0, 8.0, 16.0]


def test_error_event_before_the_first_text_is_retried() -> None:
    whole = answer("anthropic", Reply("Hello wor"))
    assert isinstance(whole.body, bytes)
    start = whole.body[: whole.body.index(b"event: content_block")]
    error = b'data: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'

    async def main() -> list[Delta]:
        early = Answer(start + error, headers=whole.headers)
        async with open_wire("anthropic", early, whole) as (provider, _):
            return await stream_deltas(make_retrying_provider(provider))

    deltas = anyio.run(main)

    assert isinstance(deltas[0], Retrying)
    assert (words(deltas), type(deltas[-1])) == ("Hello wor", Done)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers, now=60.0) == seconds


def test_busy_server_is_retried_also_while_requests_are_traced() -> None:
    async def main() -> list[Delta]:
        good = answer("anthropic", Reply("Yes."))
        async with open_wire("anthropic", BUSY, good) as (provider, _):
            model_request = request(message("user", "?"), trace=True)
            return await stream_deltas(make_retrying_provider(provider), model_request)

    deltas = anyio.run(main)

    assert words(deltas) == "Yes."
    assert [type(d) for d in deltas[:4]] == [
        RequestSent,
        ResponseBytes,
        Retrying,
        RequestSent,
    ]


def test_retrying_provider_closes_the_inner_provider() -> None:
    class Closing(FaultyProvider):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    inner = Closing("Yes", fault=Overloaded("busy"))

    anyio.run(make_retrying_provider(inner).aclose)

    assert inner.closed
    anyio.run(
        make_retrying_provider(FaultyProvider("Yes", fault=Overloaded("busy"))).aclose
    )
