"""A chain of models: which is asked when, what watchers see, and which is named."""

from collections.abc import AsyncGenerator, Callable

import anyio
import pytest

from refold.errors import (
    BadInput,
    Overloaded,
    ProviderError,
    Refused,
    TooLong,
    Unreachable,
)
from refold.provider.catalog import connect
from refold.provider.fallback import Fallback
from refold.provider.port import (
    Delta,
    Done,
    Dropped,
    Provider,
    Request,
    RequestSent,
    ResponseBytes,
    Retrying,
    TextDelta,
)
from refold.provider.retry import Backoff, RetryingProvider
from refold.testing.clock import Clock
from refold.testing.providers import FaultyProvider, Reply, ScriptedProvider
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, wire_server
from tests.provider.wires import KEY, message, request, spec_of, stream_deltas, words

FIRST, SECOND, THIRD = "acme/one", "other/two", "third/three/x"


def make_chain(
    *providers: Provider, clock: Clock | None = None, rest: float = 30.0
) -> Fallback:
    links = zip((FIRST, SECOND, THIRD), providers, strict=False)
    pairs = [(name, _connect_to(provider)) for name, provider in links]
    return Fallback(pairs, rest_seconds=rest, clock=clock or Clock())


def _connect_to(provider: Provider) -> Callable[[], Provider]:
    return lambda: provider


def read_deltas(provider: Provider) -> list[Delta]:
    return anyio.run(
        stream_deltas, provider, request(message("user", "Rain?"), model="one")
    )


def last_delta(deltas: list[Delta]) -> Done:
    assert isinstance(deltas[-1], Done)
    return deltas[-1]


def test_second_model_is_not_created_while_the_first_answers() -> None:
    def fail_if_created() -> Provider:
        raise AssertionError("it was made")

    deltas = read_deltas(
        Fallback([(FIRST, lambda: ScriptedProvider("Yes.")), (SECOND, fail_if_created)])
    )

    assert words(deltas) == "Yes."
    assert not any(isinstance(d, Retrying) for d in deltas)
    assert last_delta(deltas).by == ""


@pytest.mark.parametrize("fault", [Overloaded("busy"), Unreachable("busy")])
def test_next_model_is_asked_under_its_own_name_when_the_first_is_down(
    fault: ProviderError,
) -> None:
    first, second = FaultyProvider("No.", fault=fault), ScriptedProvider("Yes.")

    deltas = read_deltas(make_chain(first, second))

    assert deltas[0] == Retrying(0.0, "acme/one is down (busy): asking other/two instead")
    assert words(deltas) == "Yes."
    assert last_delta(deltas).by == "other/two"
    assert [r.model for r in (*first.heard, *second.heard)] == ["one", "two"]
    assert first.heard[0].messages is second.heard[0].messages


def test_only_the_first_slash_separates_provider_and_model() -> None:
    third = ScriptedProvider("Yes.")
    down = [FaultyProvider("", fault=Unreachable("gone")) for _ in range(2)]

    deltas = read_deltas(make_chain(*down, third))

    assert third.heard[0].model == "three/x"
    assert last_delta(deltas).by == THIRD


@pytest.mark.parametrize(
    "fault", [Refused("no"), TooLong("too long"), ProviderError("odd")]
)
def test_refusal_of_a_request_does_not_cause_a_fallback(fault: ProviderError) -> None:
    second = ScriptedProvider("Yes.")

    with pytest.raises(type(fault), match=f"^{fault}$"):
        read_deltas(make_chain(FaultyProvider("No.", fault=fault), second))

    assert second.heard == []


def test_refusal_by_the_next_model_says_why_that_model_was_asked() -> None:
    first = FaultyProvider("No.", fault=Overloaded("busy"))
    second = FaultyProvider("No.", fault=TooLong("too long"))

    with pytest.raises(TooLong) as caught:
        read_deltas(make_chain(first, second, ScriptedProvider("Yes.")))

    expected = "too long (other/two was asked because acme/one is down (busy))"
    assert str(caught.value) == expected


@pytest.mark.parametrize("line", ["Yes", [("look", "{}")], Reply("Yes", thinking="Hm")])
def test_fallback_drops_a_response_that_failed_in_the_middle(
    line: str | list[tuple[str, str]] | Reply,
) -> None:
    second = ScriptedProvider("Yes.")

    deltas = read_deltas(
        make_chain(FaultyProvider(line, fault=Unreachable("gone"), after=1), second)
    )

    index = deltas.index(Dropped("gone", "Unreachable"))
    assert index == 1
    assert words(deltas[index:]) == "Yes."
    assert len(second.heard) == 1


def test_failed_response_of_the_last_model_is_raised_and_not_dropped() -> None:
    first = FaultyProvider("Yes", fault=Unreachable("gone"))
    second = FaultyProvider("Yes", fault=Unreachable("gone, too"), after=1)
    deltas: list[Delta] = []

    async def main() -> None:
        async for delta in make_chain(first, second).stream(request(message("user", "?"))):
            deltas.append(delta)

    with pytest.raises(Unreachable, match=r"^gone, too$"):
        anyio.run(main)

    assert not any(isinstance(delta, Dropped) for delta in deltas)


def test_traced_bytes_do_not_prevent_a_fallback() -> None:
    deltas = read_deltas(make_chain(_Traced(Unreachable("gone")), ScriptedProvider("Yes.")))

    assert deltas[:2] == [RequestSent("POST http://x", b"{}"), ResponseBytes(b"<html>")]
    assert words(deltas) == "Yes."


def test_error_after_all_models_failed_names_each_with_its_reason() -> None:
    with pytest.raises(Overloaded) as caught:
        read_deltas(
            make_chain(
                FaultyProvider("", fault=Unreachable("gone")),
                FaultyProvider("", fault=Overloaded("busy", retry_after=9)),
                FaultyProvider("", fault=Overloaded("full", retry_after=4)),
            )
        )

    assert str(caught.value) == (
        "no model is available: acme/one is down (gone); other/two is down (busy); "
        "third/three/x is down (full)"
    )
    assert caught.value.retry_after == 4


def test_model_without_a_key_is_skipped_with_a_notice() -> None:
    def keyless() -> Provider:
        raise BadInput("set ACME_API_KEY")

    deltas = read_deltas(
        Fallback([(FIRST, keyless), (SECOND, lambda: ScriptedProvider("Yes."))])
    )

    reason = "acme/one is not available (set ACME_API_KEY): asking other/two instead"
    assert deltas[0] == Retrying(0.0, reason)
    assert last_delta(deltas).by == SECOND


def test_fallback_chain_in_which_no_model_has_a_key_is_refused() -> None:
    def keyless() -> Provider:
        raise BadInput("no key")

    with pytest.raises(Refused, match=r"acme/one is not available \(no key\)"):
        read_deltas(Fallback([(FIRST, keyless)]))


def test_fallback_chain_without_models_is_refused() -> None:
    with pytest.raises(BadInput, match="at least one"):
        Fallback([])


def test_failed_model_is_skipped_for_a_while_and_then_asked_first_again() -> None:
    clock = Clock(1000.0)
    first = FaultyProvider("Back.", fault=Unreachable("gone"))
    second = ScriptedProvider("One.", "Two.", "Three.")
    both = make_chain(first, second, clock=clock, rest=30.0)

    texts = [words(read_deltas(both))]
    clock.jump(29.0)
    meanwhile = read_deltas(both)
    texts.append(words(meanwhile))
    clock.jump(2.0)
    texts.append(words(read_deltas(both)))

    assert texts == ["One.", "Two.", "Back."]
    assert len(first.heard) == 2
    assert not any(isinstance(d, Retrying) for d in meanwhile)


def test_failed_model_is_skipped_for_as_long_as_it_asked_to_wait() -> None:
    clock = Clock()
    first = FaultyProvider("Back.", fault=Overloaded("busy", retry_after=100))
    both = make_chain(first, ScriptedProvider("One.", "Two."), clock=clock)

    texts = [words(read_deltas(both))]
    clock.jump(99.0)
    texts.append(words(read_deltas(both)))
    clock.jump(2.0)
    texts.append(words(read_deltas(both)))

    assert texts == ["One.", "Two.", "Back."]


def test_skipped_model_is_asked_anyway_when_all_others_fail() -> None:
    first = FaultyProvider("Back.", fault=Unreachable("gone"))
    second = ScriptedProvider("Other.", Unreachable("gone too"))
    both = make_chain(first, second)

    assert words(read_deltas(both)) == "Other."
    assert words(read_deltas(both)) == "Back."
    assert len(second.heard) == 2  # the second time, it was asked before the first model


def test_models_that_have_all_failed_are_asked_again_in_their_order() -> None:
    first = FaultyProvider("Back.", fault=Unreachable("gone"))
    second = FaultyProvider("Other.", fault=Unreachable("gone too"))
    both = make_chain(first, second)

    with pytest.raises(Unreachable):
        read_deltas(both)
    assert words(read_deltas(both)) == "Back."
    assert len(second.heard) == 1


def test_model_that_answered_again_is_no_longer_skipped() -> None:
    clock = Clock()
    first = FaultyProvider("Back.", fault=Overloaded("busy", retry_after=100))
    second = FaultyProvider("Other.", fault=Unreachable("gone"))
    both = make_chain(first, second, clock=clock)

    with pytest.raises(Overloaded):
        read_deltas(both)
    texts = [words(read_deltas(both))]
    clock.jump(50.0)
    texts.append(words(read_deltas(both)))

    assert texts == ["Back.", "Back."]


def test_failing_model_uses_up_its_retries_once_and_is_then_skipped() -> None:
    clock = Clock()
    inner = FaultyProvider("No.", fault=Overloaded("busy"), times=99)
    patient = RetryingProvider(
        inner, Backoff(retries=2), sleep=clock.sleep, dice=lambda: 1.0
    )
    both = make_chain(patient, ScriptedProvider("One.", "Two.", "Three."), clock=clock)

    for _ in range(3):
        read_deltas(both)

    assert (len(inner.heard), clock.slept) == (3, [1.0, 2.0])


def test_fallback_closes_the_providers_that_it_made() -> None:
    closed = list[str]()

    class Closing(ScriptedProvider):
        async def aclose(self) -> None:
            closed.append("first")

    def fail_if_created() -> Provider:
        raise AssertionError("it was made")

    async def main() -> None:
        both = Fallback([(FIRST, lambda: Closing("Yes.")), (SECOND, fail_if_created)])
        await stream_deltas(both)
        await both.aclose()

    anyio.run(main)

    assert closed == ["first"]


def test_cancelled_answer_does_not_mark_the_model_as_failed() -> None:
    async def main() -> str:
        hanging = FaultyProvider("Back.", fault="hang")
        both = make_chain(hanging, ScriptedProvider("Other."))
        with anyio.move_on_after(0.02):
            await stream_deltas(both)
        return words(await stream_deltas(both))

    assert anyio.run(main) == "Back."


def test_fallback_provider_gets_the_same_conversation_over_http() -> None:
    conversation = (
        message("user", "Rain?"),
        message("assistant", "Where?"),
        message("user", "Oslo"),
    )

    async def main() -> tuple[list[Delta], list[bytes], list[bytes]]:
        async with (
            wire_server(Answer(b"{}", 529)) as busy,
            wire_server(answer("openai-chat", Reply("Yes."))) as good,
        ):
            claude, gpt = spec_of("anthropic"), spec_of("openai-chat")
            both = Fallback(
                [
                    ("anthropic/c", lambda: connect(claude, {claude.url_env: busy.url})),
                    (
                        "openai-chat/g",
                        lambda: connect(gpt, {gpt.url_env: good.url}, key=KEY),
                    ),
                ]
            )
            result = await stream_deltas(
                both, request(*conversation, model="c", trace=True)
            )
            await both.aclose()
            return result, [h.body for h in busy.heard], [h.body for h in good.heard]

    deltas, asked_first, asked_next = anyio.run(main)

    assert words(deltas) == "Yes."
    assert (last_delta(deltas).by, last_delta(deltas).model) == ("openai-chat/g", "gpt-1")
    assert b'"model":"c"' in asked_first[0]
    assert b'"model":"g"' in asked_next[0]
    assert all(m.text.encode() in asked_next[0] for m in conversation)
    assert [type(d) for d in deltas if isinstance(d, RequestSent | Retrying)] == [
        RequestSent, Retrying, RequestSent,
    ]  # fmt: skip
    assert not any(isinstance(d, TextDelta) for d in deltas[:2])


class _Traced:
    def __init__(self, fault: ProviderError) -> None:
        self._fault = fault

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield RequestSent("POST http://x", b"{}")
        yield ResponseBytes(b"<html>")
        raise self._fault
