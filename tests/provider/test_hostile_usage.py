"""Reported usage is never a credit, and a small response never a large one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.provider.port import Done
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.values.usage import Usage
from tests.provider.wires import WIRES, read_deltas, words

COUNTS = st.integers(-(10**30), 10**30)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_negative_or_invalid_usage_never_lowers_the_sum(
    a: int, b: int, c: int, d: int, e: int
) -> None:
    before = Usage(1, 2, 3, 4, 5)

    after = before + Usage(a, b, c, d, e)

    assert all(
        getattr(after, name) >= getattr(before, name) for name in Usage.__struct_fields__
    )


@pytest.mark.parametrize(
    "invalid_count", [b'"many"', b"[1]", b"true", b"1e400", b"NaN", b"-5"]
)
@pytest.mark.parametrize("wire", WIRES)
def test_invalid_token_counts_do_not_lose_the_answer(
    wire: WireName, invalid_count: bytes
) -> None:
    """Invalid counts are like missing ones; the engine decides what is charged then."""
    good = answer(wire, Reply("Rain.", usage=Usage(fresh=4_321, output=1_234)))
    assert isinstance(good.body, bytes)
    odd = (
        good.body.replace(b"4321", invalid_count)
        .replace(b"1234", invalid_count)
        .replace(b"5555", invalid_count)
    )

    deltas = read_deltas(wire, replace(good, body=odd))

    assert words(deltas) == "Rain."
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].usage.input == 0
    assert deltas[-1].usage.output <= 1  # what Anthropic says at the start of an answer


def test_token_counts_that_are_not_an_object_do_not_lose_the_answer() -> None:
    good = answer("openai-chat", Reply("Rain.", usage=Usage(fresh=4_321, output=1_234)))
    assert isinstance(good.body, bytes)
    odd = re.sub(rb'"usage":\{.*\}(?=\}\n\n)', b'"usage":"none"', good.body)

    deltas = read_deltas("openai-chat", replace(good, body=odd))

    assert words(deltas) == "Rain."
    assert deltas[-1] == Done(model="gpt-1")
