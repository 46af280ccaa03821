"""The provider that fails on purpose fails exactly where its arguments say."""

import anyio
import pytest

from refold.errors import Overloaded
from refold.provider.port import CallDelta, Delta, Done, TextDelta
from refold.testing.providers import FaultyProvider
from tests.provider.wires import stream_deltas, words

CALLS = [("look", "{}"), ("book", '{"to":1}')]


def read_deltas(provider: FaultyProvider) -> list[Delta]:
    return anyio.run(stream_deltas, provider)


def test_faulty_provider_raises_after_the_given_deltas_and_then_works() -> None:
    provider = FaultyProvider("abc", fault=Overloaded("busy"), after=2)

    with pytest.raises(Overloaded):
        read_deltas(provider)
    assert words(read_deltas(provider)) == "abc"


def test_faulty_provider_can_end_without_done() -> None:
    assert read_deltas(FaultyProvider("abc", fault="silence", after=1)) == [TextDelta("a")]


def test_faulty_provider_can_hang_after_the_given_deltas() -> None:
    async def main() -> bool:
        with anyio.move_on_after(0.02) as scope:
            await stream_deltas(FaultyProvider("abc", fault="hang", after=1))
        return scope.cancelled_caught

    assert anyio.run(main)


def test_faulty_provider_can_give_every_call_the_same_id() -> None:
    deltas = read_deltas(FaultyProvider(CALLS, fault="same ids"))

    assert [d.id for d in deltas if isinstance(d, CallDelta) and d.id] == ["theirs"] * 2


def test_faulty_provider_can_cut_off_arguments_and_still_end_with_done() -> None:
    deltas = read_deltas(FaultyProvider(CALLS, fault="garbled"))

    assert "".join(d.arguments for d in deltas if isinstance(d, CallDelta)) == '{{"to":1'
    assert isinstance(deltas[-1], Done)
