"""Whatever a conversation contains, the request is valid for a strict server."""

import json
from collections.abc import Callable, Sequence
from types import ModuleType

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from refold.journal.events.kinds import Compacted
from refold.journal.state.compacted_messages import compact_messages
from refold.provider import anthropic, gemini, ollama, openai_chat, responses, sanitize
from refold.provider.encoding_cache import Encoded
from refold.provider.port import Request
from refold.testing.wire_answers import WireName
from refold.values.growing import Log
from refold.values.messages import (
    Image,
    Message,
    StoredMessage,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.provider.strict_servers import rejection_reason, strict
from tests.provider.wires import (
    BLOB,
    CONVERSATION,
    ITEM,
    PICTURES,
    SIGNED,
    WIRES,
    message,
    open_wire,
    request,
    stream_deltas,
    words,
)

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
    ANYTHING.map(
        lambda text: text.replace("\0", "")
    ),  # sent unchanged, so it was valid before
    st.sampled_from(["", *WIRES, "other"]),
    st.sampled_from(
        [
            *(b"null", b"3", b"", b"{}", b"[]", b"\xff"),
            *(b'{"signature":"s"}', b'{"redacted":"r"}'),
            *(ITEM, b'{"phase":"commentary"}', b'{"phase":"final_answer"}'),
            *(b'{"thoughtSignature":"s"}', b'{"thoughtSignature":"s","text":""}'),
            b'{"thoughtSignature":"s","thought":true}',
        ]
    ).map(Raw),
)
KEPT = st.sampled_from([b"null", b"{}", SIGNED, b'{"thoughtSignature":"s"}', b"{", b""])
CALLED = st.lists(
    st.tuples(
        *(ANYTHING, ARGUMENTS, ANYTHING, st.sampled_from(["", *WIRES]), KEPT.map(Raw)),
        st.sampled_from(["", "tool_call"]),
    ),
    max_size=3,
)


IMAGE = st.builds(
    Image,
    st.sampled_from([BLOB, "b" * 64]),
    st.sampled_from(["image/png", "image/gif", "image/heic", "image/svg+xml", "?"]),
    ANYTHING,
)
IMAGES = st.lists(IMAGE, max_size=2).map(tuple)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Return a conversation as the engine sends it: every call answered by the next
    message.
    """
    messages = [message("user", draw(ANYTHING), *draw(IMAGES))]
    for number in range(draw(st.integers(0, 4))):
        called = draw(CALLED)
        calls = [
            ToolCall(f"call-{number}-{n}", name, Raw(arguments), *theirs)
            for n, (name, arguments, *theirs) in enumerate(called)
        ]
        value = draw(st.lists(st.one_of(ANYTHING, THINKING), max_size=3))
        messages.append(message("assistant", *value, *calls))
        if calls:
            results = [
                ToolResult(c.id, draw(ANYTHING), draw(st.booleans()), draw(IMAGES))
                for c in calls
            ]
            messages.append(message("tool", *results))
        value = draw(st.lists(st.one_of(ANYTHING, IMAGE), min_size=not calls))
        messages += [message("user", item) for item in value]
    return messages


def body(wire: WireName, request: Request) -> dict[str, object]:
    """Return the body of the request, without sending it."""
    return json.loads(_BODIES[wire](request))


def _gemini(request: Request) -> bytes:
    called: dict[str, gemini.NamedCall] = {}
    for spoken in request.messages:
        called |= gemini.calls_of(spoken.message)
    encoded = Encoded(
        lambda m, _: gemini.message_to_wire(
            m, calls=called, encoding=gemini.GeminiEncoding("filled")
        )
    )
    return gemini.to_wire(request, encoded.join(request.messages, request.pictures))


def _ollama(request: Request) -> bytes:
    original_calls = (
        sanitize.original_call(c) for s in request.messages for c in s.message.calls
    )
    names = {call.id: call.name for call in original_calls}
    encoded = Encoded(lambda m, p: ollama.message_to_wire(m, p, names=names))
    return ollama.to_wire(request, encoded.join(request.messages, request.pictures), 4096)


def _encode_with(
    wire: ModuleType,
) -> Callable[[Request], bytes]:
    return lambda asked: wire.to_wire(
        asked, Encoded(wire.message_to_wire).join(asked.messages, asked.pictures)
    )


_BODIES: dict[WireName, Callable[[Request], bytes]] = {
    "anthropic": _encode_with(anthropic),
    "openai-responses": _encode_with(responses),
    "openai-chat": _encode_with(openai_chat),
    "gemini": _gemini,
    "ollama": _ollama,
}


@st.composite
def compact_randomly(draw: st.DrawFn) -> list[Message]:
    """Return a conversation after one or two compactions, wherever they may happen."""
    log = Log([StoredMessage(n, m) for n, m in enumerate(draw(conversations()), start=1)])
    for seq in (100, 200)[: draw(st.integers(1, 2))]:
        messages = [s.message for s in log]
        ids = [c.id for m in messages for c in m.calls]
        lines = draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
        first = [s.seq for s in log if s.message.role != "tool"]
        event = Compacted(
            draw(st.sampled_from(["prune", "full", "trim"])),
            pruned=tuple((id_, draw(ANYTHING)) for id_ in lines),
            first_kept=draw(st.sampled_from([0, *first])),
            preserved="What the person said: " + draw(ANYTHING),
            summary=draw(ANYTHING),
        )
        log = compact_messages(log, event, seq)
        if log[-1].message.role == "assistant":  # as the engine would continue
            log = log.plus(StoredMessage(seq + 1, message("user", "Go on.")))
    return [spoken.message for spoken in log]


@pytest.mark.parametrize("wire", WIRES)
@settings(deadline=None, max_examples=20)
@given(conversation=compact_randomly())
def test_compacted_conversation_is_a_valid_request(
    wire: WireName, conversation: Sequence[Message]
) -> None:
    model_request = request(*conversation, pictures=PICTURES)

    assert rejection_reason(wire, body(wire, model_request)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@settings(deadline=None, max_examples=300)
@given(conversation=compact_randomly())
def test_any_compacted_conversation_is_a_valid_request(
    wire: WireName, conversation: Sequence[Message]
) -> None:
    model_request = request(*conversation, pictures=PICTURES)

    assert rejection_reason(wire, body(wire, model_request)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@settings(deadline=None, max_examples=300)
@given(conversation=conversations(), system=ANYTHING)
def test_any_conversation_is_a_valid_request(
    wire: WireName, conversation: Sequence[Message], system: str
) -> None:
    model_request = request(*conversation, system=system, pictures=PICTURES)

    assert rejection_reason(wire, body(wire, model_request)) == ""


@pytest.mark.parametrize("wire", WIRES)
@settings(deadline=None, max_examples=15)
@given(conversation=conversations(), system=ANYTHING)
def test_any_small_conversation_is_a_valid_request(
    wire: WireName, conversation: Sequence[Message], system: str
) -> None:
    model_request = request(*conversation, system=system, pictures=PICTURES)

    assert rejection_reason(wire, body(wire, model_request)) == ""


@pytest.mark.parametrize("wire", WIRES)
def test_a_growing_conversation_is_accepted_at_every_step(wire: WireName) -> None:
    async def main() -> list[str]:
        async with open_wire(wire, strict(wire)) as (provider, _):
            return [
                words(await stream_deltas(provider, request(*CONVERSATION[:n])))
                for n in (1, 3, 4, 5)
            ]

    assert anyio.run(main) == ["Fine."] * 4


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "wrong",
    [
        CONVERSATION[:2],
        (CONVERSATION[0], CONVERSATION[2]),
        (*CONVERSATION[:2], CONVERSATION[4]),
    ],
)
def test_strict_servers_refuse_invalid_requests(
    wire: WireName, wrong: tuple[Message, ...]
) -> None:
    assert rejection_reason(wire, body(wire, request(*wrong))) != ""


PICTURE: dict[WireName, tuple[str, dict[str, object]]] = {
    "openai-chat": ("messages", {"role": "tool", "tool_call_id": "call-1", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]}),
    "anthropic": ("messages", {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "call-1", "is_error": True, "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ]},
    ]}),
    "openai-responses": ("input", {"type": "function_call_output", "call_id": "call-1", "output": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]}),
    "gemini": ("contents", {"role": "user", "parts": [
        {"functionResponse": {"name": "look", "response": {}, "parts": [
            {"inlineData": {"mimeType": "image/gif", "data": "AAAA"}},
        ]}},
    ]}),
    "ollama": ("messages", {"role": "tool", "tool_name": "look", "content": "", "images": ["no base64"]}),
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
def test_strict_servers_refuse_an_image_where_it_is_not_allowed(wire: WireName) -> None:
    call = message("assistant", ToolCall("call-1", "look", Raw(b"{}")))
    tool_message = message("tool", ToolResult("call-1", "clouds"))
    good = body(wire, request(message("user", "?"), call, tool_message))
    name, wrong = PICTURE[wire]
    conversation = good[name]
    assert isinstance(conversation, list)
    assert rejection_reason(wire, good) == ""

    outcome = rejection_reason(wire, {**good, name: [*conversation[:-1], wrong]})

    assert outcome != ""


SEALS = {
    "anthropic": ('"sig"', "cmVk"),
    "openai-responses": ("eHg=", "commentary"),
    "openai-chat": (),
    "gemini": ("dGV4dA==", "Y2FsbA==", '"g-1"'),
    "ollama": (),
}


@pytest.mark.parametrize("wire", WIRES)
def test_opaque_data_of_one_wire_is_not_sent_on_another(wire: WireName) -> None:
    result = json.dumps(body(wire, request(*CONVERSATION)))

    data = {other: all(seal in result for seal in SEALS[other]) for other in WIRES}
    leaked = {o for o in WIRES for seal in SEALS[o] if seal in result} - {wire}

    assert data[wire]
    assert leaked == set()
