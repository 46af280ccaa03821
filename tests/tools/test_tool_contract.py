"""What `@tool` makes of a function, and how arguments are decoded."""

import json
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import ToolFailed
from refold.tools.contract import Context, Reply, tool
from refold.values.json_check import find_repeated_key, keys_are_unique
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
def test_a_repeated_key_in_the_arguments_is_refused(arguments: bytes) -> None:
    with pytest.raises(ToolFailed, match="twice in one object"):
        book.parse(arguments)


def test_colons_in_keys_and_values_do_not_count_as_repeated_keys() -> None:
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
def test_the_fast_check_finds_every_repeated_key(
    pairs: list[tuple[str, object]],
) -> None:
    fields = (f"{json.dumps(key)}:{json.dumps(value)}" for key, value in pairs)
    text = f"{{{','.join(fields)}}}".encode()

    unique = keys_are_unique(text, msgspec.json.decode(text))

    assert unique == (find_repeated_key(text) is None)


def test_a_tool_is_described_by_the_first_paragraph_of_its_docstring() -> None:
    async def tides(harbour: str) -> str:
        return harbour

    # As it may be written: empty lines before it, blanks in the line after it.
    tides.__doc__ = (
        "\n\n    Tides at\n    a harbour.\n    \n    For maintainers only.\n    "
    )

    assert tool(Effect.LOOK)(tides).description == "Tides at a harbour."


def test_a_tool_signature_separates_arguments_from_context_and_resources() -> None:
    @tool(Effect.LOOK)
    async def sail(about: Context, to: str, by: int = 3, *, charts: object) -> Reply:
        """Sail there."""
        return Reply(f"{about} {to} {by} {charts}")

    signature = sail.signature()

    assert (signature.context, signature.needs, signature.subject) == (
        "about",
        ("charts",),
        "to",
    )
    assert json.loads(bytes(signature.schema)) == {
        "type": "object",
        "properties": {"to": {"type": "string"}, "by": {"type": "integer", "default": 3}},
        "required": ["to"],
        "additionalProperties": False,
    }
    assert sail.parse(b'{"to": "Oslo"}') == {"to": "Oslo"}
