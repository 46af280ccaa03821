"""What `@tool` makes of a function, and how arguments are decoded."""

import json
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import ToolFailed
from refold.tools.contract import Reply, tool
from refold.values.json_check import keys_are_unique, repeated_key
from refold.values.tools import Effect


@tool(Effect.LOOK)
async def temperature(city: str) -> str:
    """The temperature in a city."""
    return f"12 degrees in {city}"


@tool(Effect.LOOK)
async def book(what: str, options: dict[str, Any]) -> Reply:
    """Book it."""
    return Reply(f"{what} {options}")


def test_a_tool_may_return_plain_text() -> None:
    async def call() -> Reply:
        return await temperature.run(city="Oslo")

    assert anyio.run(call) == Reply("12 degrees in Oslo")


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"what": "taxi", "what": "jet", "options": {}}',
        b'{"what": "taxi", "options": {"a": [{"b": 1, "b": 2}]}}',
        b'{"what": "\\u003a", "what": "jet", "options": {}}',  # an escaped colon
        b'{"what": "jet", "what": ":", "options": {"a:": 1, "a:": ":"}}',
    ],
)
def test_a_key_that_stands_twice_is_refused(arguments: bytes) -> None:
    with pytest.raises(ToolFailed, match="twice in one object"):
        book.parse(arguments)


def test_colons_in_keys_and_texts_are_no_repeated_key() -> None:
    arguments = {"what": "a: b:c", "options": {"k:": ["::", {"x": ":"}], "n": None}}

    assert book.parse(msgspec.json.encode(arguments)) == arguments


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(alphabet=':"\\a', max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet=":ab", max_size=1), inner, max_size=3)
    ),
)


@given(pairs=st.lists(st.tuples(st.text(alphabet=":ab", max_size=1), JSON), max_size=4))
def test_the_quick_test_never_misses_a_repeated_key(
    pairs: list[tuple[str, object]],
) -> None:
    fields = (f"{json.dumps(key)}:{json.dumps(value)}" for key, value in pairs)
    text = f"{{{','.join(fields)}}}".encode()

    unique = keys_are_unique(text, msgspec.json.decode(text))

    assert unique == (repeated_key(text) is None)
