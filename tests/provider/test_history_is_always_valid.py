"""Whatever a conversation holds, what goes out is valid for a strict server."""

import json
from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from strict_servers import complaint, strict
from wires import CONVERSATION, WIRES, asking, heard, message, request, words

from refold.provider import anthropic, ollama, openai_chat
from refold.provider.encoded import Encoded
from refold.provider.port import Request
from refold.testing.wire_answers import WireName
from refold.values.messages import Message, Thinking, ToolCall, ToolResult

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=8)
ARGUMENTS = st.one_of(
    st.dictionaries(ANYTHING, st.one_of(ANYTHING, st.integers(), st.floats()), max_size=2)
    .map(json.dumps)
    .map(str.encode),
    st.binary(max_size=8),
    st.sampled_from([b"", b"[]", b"null", b'{"a":', b'{"a":NaN}', b'{"a":1e999}']),
)
THINKING = st.builds(
    Thinking,
    ANYTHING.map(lambda text: text.replace("\0", "")),  # sent as it came, so it came clean
    st.sampled_from(["", "anthropic", "openai-chat", "other"]),
    st.sampled_from([b"null", b'{"signature":"s"}', b'{"redacted":"r"}', b"3", b""]).map(
        Raw
    ),
)
CALLED = st.lists(st.tuples(ANYTHING, ARGUMENTS, ANYTHING), max_size=3)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """A talk as the engine would tell it: every call answered by the next message."""
    found = [message("user", draw(ANYTHING))]
    for number in range(draw(st.integers(0, 4))):
        called = draw(CALLED)
        calls = [
            ToolCall(f"call-{number}-{n}", name, Raw(arguments), theirs)
            for n, (name, arguments, theirs) in enumerate(called)
        ]
        said = draw(st.lists(st.one_of(ANYTHING, THINKING), max_size=3))
        found.append(message("assistant", *said, *calls))
        if calls:
            results = [ToolResult(c.id, draw(ANYTHING), draw(st.booleans())) for c in calls]
            found.append(message("tool", *results))
        found += [message("user", w) for w in draw(st.lists(ANYTHING, min_size=not calls))]
    return found


def body(wire: WireName, asked: Request) -> dict[str, object]:
    """What the wire sends, without sending it."""
    names = {c.id: c.name for s in asked.messages for c in s.message.calls}
    match wire:
        case "anthropic":
            joined = Encoded(anthropic.message_to_wire).join(asked.messages)
            return json.loads(anthropic.to_wire(asked, joined))
        case "openai-chat":
            joined = Encoded(openai_chat.message_to_wire).join(asked.messages)
            return json.loads(openai_chat.to_wire(asked, joined))
        case "ollama":
            joined = Encoded(lambda m: ollama.message_to_wire(m, names)).join(
                asked.messages
            )
            return json.loads(ollama.to_wire(asked, joined, 4096))


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@settings(deadline=None, max_examples=300)
@given(talk=conversations(), system=ANYTHING)
def test_any_conversation_is_valid(
    wire: WireName, talk: Sequence[Message], system: str
) -> None:
    assert complaint(wire, body(wire, request(*talk, system=system))) == ""


@pytest.mark.parametrize("wire", WIRES)
@settings(deadline=None, max_examples=15)
@given(talk=conversations(), system=ANYTHING)
def test_any_small_conversation_is_valid(
    wire: WireName, talk: Sequence[Message], system: str
) -> None:
    assert complaint(wire, body(wire, request(*talk, system=system))) == ""


@pytest.mark.parametrize("wire", WIRES)
def test_a_growing_conversation_is_accepted_at_every_step(wire: WireName) -> None:
    async def use() -> list[str]:
        async with asking(wire, strict(wire)) as (provider, _):
            return [
                words(await heard(provider, request(*CONVERSATION[:n])))
                for n in (1, 3, 4, 5)
            ]

    assert anyio.run(use) == ["Fine."] * 4


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "wrong",
    [
        CONVERSATION[:2],
        (CONVERSATION[0], CONVERSATION[2]),
        (*CONVERSATION[:2], CONVERSATION[4]),
    ],
)
def test_the_strict_servers_do_refuse(wire: WireName, wrong: tuple[Message, ...]) -> None:
    assert complaint(wire, body(wire, request(*wrong))) != ""
