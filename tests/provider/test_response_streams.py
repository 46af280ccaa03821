"""Responses as providers stream them, and what the wires make of them.

Each stream has an oddity of some real server; its name says which.
"""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from refold.errors import ProviderError, TooLong, Unreachable
from refold.provider.cassette_format import join_deltas
from refold.provider.port import CallDelta, Delta, Done, TextDelta, ThinkingDelta
from refold.testing.providers import Reply
from refold.testing.wire_answers import NDJSON, SSE, WireName, answer, ndjson, sse
from refold.testing.wire_server import Answer
from refold.values.usage import Usage
from tests.provider.wires import WIRES, read_deltas, words

FULL = Reply(
    "Let me look. ☂",
    (("look", '{"where":"up ☁"}'), ("book", "{}")),
    thinking="Clouds?",
    usage=Usage(fresh=7, cached=100, cache_write=20, output=30, reasoning=4),
)


def anthropic(*events: dict[str, Any]) -> list[Delta]:
    start = {
        "type": "message_start",
        "message": {"model": "c", "usage": {"input_tokens": 5}},
    }
    end = (
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
    body = b"".join(sse(e) for e in (start, *events, *end))
    return read_deltas("anthropic", Answer(body, headers=SSE))


def openai(*chunks: dict[str, Any], finish: str = "stop", done: bool = True) -> list[Delta]:
    last = {"choices": [{"delta": {}, "finish_reason": finish}]}
    body = b"".join(sse(c) for c in (*chunks, last))
    return read_deltas(
        "openai-chat", Answer(body + b"data: [DONE]\n\n" * done, headers=SSE)
    )


def ollama(*parts: dict[str, Any]) -> list[Delta]:
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}
    body = b"".join(ndjson(p) for p in (*parts, end))
    return read_deltas("ollama", Answer(body, headers=NDJSON))


def choice(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def block(
    index: int, block: dict[str, Any], *deltas: dict[str, Any]
) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
        {"type": "content_block_stop", "index": index},
    ]


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_gives_the_same_deltas_for_the_same_answer(wire: WireName) -> None:
    deltas = read_deltas(wire, answer(wire, FULL))

    thought = "".join(d.text for d in deltas if isinstance(d, ThinkingDelta))
    calls = [d for d in deltas if isinstance(d, CallDelta)]
    assert (thought, words(deltas)) == ("Clouds?", "Let me look. ☂")
    assert [d.name for d in calls if d.name] == ["look", "book"]
    for name, arguments in FULL.calls:
        index = next(d.index for d in calls if d.name == name)
        assert "".join(d.arguments for d in calls if d.index == index) == arguments
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].stop == "calls"
    assert deltas[-1].usage.input == 127  # every provider counts them another way
    assert deltas[-1].usage.output == 30


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses", "openai-chat"])
def test_cached_and_reasoning_tokens_are_counted_separately(wire: WireName) -> None:
    deltas = read_deltas(wire, answer(wire, FULL))

    assert isinstance(deltas[-1], Done)
    assert deltas[-1].usage == FULL.usage


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_answer_does_not_depend_on_where_its_bytes_are_cut(
    wire: WireName, size: int
) -> None:
    whole = answer(wire, FULL)
    assert isinstance(whole.body, bytes)
    crlf = whole.body.replace(b"\n", b"\r\n")
    cut = tuple(crlf[start : start + size] for start in range(0, len(crlf), size))
    expected = join_deltas(read_deltas(wire, whole))

    assert join_deltas(read_deltas(wire, Answer(cut, headers=whole.headers))) == expected


def test_text_events_of_one_read_become_one_delta() -> None:
    whole = answer("openai-chat", Reply("Let me look. " * 5))

    deltas = read_deltas("openai-chat", whole)

    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["Let me look. " * 5]


def test_anthropic_thinking_block_ends_with_its_signature() -> None:
    deltas = anthropic(
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        *block(1, {"type": "redacted_thinking", "data": "cmVk"}),
    )

    assert deltas[:-1] == [
        ThinkingDelta("Hm."),
        ThinkingDelta("", "anthropic", Raw(b'{"signature":"c2ln"}')),
        ThinkingDelta("", "anthropic", Raw(b'{"redacted":"cmVk"}')),
    ]


def test_anthropic_call_without_arguments_gets_an_empty_object() -> None:
    deltas = anthropic(
        *block(0, {"type": "tool_use", "id": "t", "name": "look", "input": {}})
    )

    assert deltas == [
        CallDelta(0, "", "t", "look"),
        CallDelta(0, "{}"),
        Done(Usage(fresh=5, output=2), "calls", "c"),
    ]


def test_arguments_given_in_the_start_event_are_used() -> None:
    start = {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}

    assert anthropic(*block(0, start))[1] == CallDelta(0, '{"a":1}')


def test_unknown_events_blocks_and_deltas_are_ignored() -> None:
    deltas = anthropic(
        {"type": "ping"},
        {"type": "brand_new", "delta": "not even an object"},
        *block(0, {"type": "web_search_tool_result", "content": []}),
        *block(
            1, {"type": "text", "text": "A"}, {"type": "citations_delta", "citation": {}}
        ),
    )

    assert deltas[:-1] == [TextDelta("A")]


def test_call_still_open_at_the_end_of_the_stream_is_an_error() -> None:
    with pytest.raises(ProviderError, match="in the middle of a call"):
        anthropic(*block(0, {"type": "tool_use", "id": "t", "name": "look"})[:-1])


@pytest.mark.parametrize(
    ("details", "why"),
    [
        ({"type": "refusal", "category": "bio", "explanation": "Too dangerous."}, "Too dangerous."),
        ({"type": "refusal", "category": "cyber", "explanation": None}, "cyber"),
        (None, ""),
    ],
)  # fmt: skip
def test_anthropic_refusal_gives_the_reason(
    details: dict[str, Any] | None, why: str
) -> None:
    delta = {"stop_reason": "refusal", "stop_details": details}

    deltas = anthropic({"type": "message_delta", "delta": delta})

    assert deltas == [Done(Usage(fresh=5, output=2), "refused", "c", why=why)]


def test_content_filter_stop_is_a_refusal_with_the_reason() -> None:
    deltas = openai(choice(content="Ye"), finish="content_filter")

    assert deltas[-1] == Done(Usage(), "refused", why="content_filter")


@pytest.mark.parametrize(
    ("kind", "error"),
    [("overloaded_error", "Overloaded"), ("invalid_request_error", "BadRequest")],
)
def test_anthropic_error_in_a_stream_has_the_type_of_its_http_status(
    kind: str, error: str
) -> None:
    with pytest.raises(ProviderError, match="say so") as caught:
        anthropic({"type": "error", "error": {"type": kind, "message": "say so"}})

    assert type(caught.value).__name__ == error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "busy", "type": "server_error", "code": None}, "Overloaded"),
        ({"message": "busy", "code": 429}, "Overloaded"),
        ({"message": "bad", "type": "invalid_request_error", "code": None}, "BadRequest"),
        ({"message": "maximum context length is 8192 tokens", "code": 400}, "TooLong"),
        ({"message": "maximum context length is 8192 tokens", "code": "400"}, "TooLong"),
        ("just words", "Overloaded"),
    ],
)
def test_openai_error_inside_a_stream_is_raised(error: Any, kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        openai(choice(content="Hel"), {"error": error})

    assert type(caught.value).__name__ == kind


def test_error_fields_at_the_top_level_of_a_chunk_are_raised() -> None:
    too_long = "This model's maximum context length is 8192 tokens"

    with pytest.raises(TooLong, match="8192 tokens"):
        openai({"object": "error", "message": too_long, "type": "BadRequest", "code": 400})


def test_ollama_error_line_is_raised() -> None:
    with pytest.raises(ProviderError, match="llama runner has stopped"):
        ollama({"error": "llama runner has stopped"})


def test_calls_that_all_have_index_0_are_distinguished_by_id() -> None:
    deltas = openai(
        choice(tool_calls=[{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]),
        choice(tool_calls=[{"index": 0, "id": "b", "function": {"name": "y", "arguments": "{}"}}]),
    )  # fmt: skip

    assert deltas == [
        CallDelta(0, "{}", "a", "x"),
        CallDelta(1, "{}", "b", "y"),
        Done(Usage(), "calls"),
    ]


def test_two_calls_with_the_same_id_stay_separate() -> None:
    calls = [
        {"index": n, "id": "same", "function": {"name": "x", "arguments": f'{{"n":{n}}}'}}
        for n in range(2)
    ]

    deltas = openai(choice(tool_calls=calls), finish="tool_calls")

    assert deltas[:-1] == [
        CallDelta(0, '{"n":0}', "same", "x"),
        CallDelta(1, '{"n":1}', "same", "x"),
    ]


def test_call_id_and_name_repeated_in_every_chunk_mean_one_call() -> None:
    pieces = [
        choice(
            tool_calls=[{"index": 0, "id": "a", "function": {"name": "x", "arguments": p}}]
        )
        for p in ('{"a"', ":1}")
    ]

    assert openai(*pieces)[:-1] == [CallDelta(0, '{"a"', "a", "x"), CallDelta(0, ":1}")]


def test_calls_without_an_index_are_numbered_in_order() -> None:
    calls = [{"id": i, "function": {"name": "x", "arguments": "{}"}} for i in ("a", "b")]

    assert openai(choice(tool_calls=calls))[:-1] == [
        CallDelta(0, "{}", "a", "x"),
        CallDelta(1, "{}", "b", "x"),
    ]


def test_stream_without_done_marker_is_complete_if_it_had_a_finish_reason() -> None:
    assert openai(choice(content="Yes."), done=False) == [
        TextDelta("Yes."),
        Done(Usage(), "end"),
    ]


def test_refusal_text_is_shown_and_the_stop_reason_is_refused() -> None:
    assert openai(choice(refusal="I will not.")) == [
        TextDelta("I will not."),
        Done(Usage(), "refused"),
    ]


def test_both_field_names_of_reasoning_are_read_as_thinking() -> None:
    deltas = openai(
        choice(reasoning_content="A"), choice(reasoning="B"), choice(content=None)
    )

    assert deltas[:-1] == [ThinkingDelta("A"), ThinkingDelta("B")]


def test_ollama_calls_are_complete_and_numbered_in_order() -> None:
    call = {"function": {"name": "look", "arguments": {"a": 1}}}
    as_text = {"id": "i", "function": {"name": "look", "arguments": '{"a":2}'}}

    deltas = ollama(
        {"message": {"tool_calls": [call], "content": ""}},
        {"message": {"tool_calls": [as_text]}},
    )

    assert deltas == [
        CallDelta(0, '{"a":1}', "", "look"),
        CallDelta(1, '{"a":2}', "i", "look"),
        Done(Usage(fresh=5, output=2), "calls"),
    ]


@pytest.mark.parametrize("wire", WIRES)
def test_emoji_split_over_two_deltas_is_joined(wire: WireName) -> None:
    whole = answer(wire, Reply("abc🌧️."))
    assert isinstance(whole.body, bytes)
    # As a server that counts in UTF-16 would escape and cut it.
    events = _halve_event(wire, whole.body)

    deltas = read_deltas(wire, Answer(events, headers=whole.headers))

    assert words(deltas) == "abc🌧️."


def _halve_event(wire: WireName, body: bytes) -> bytes:
    """Return the event with the emoji twice: with its first half, then with the other."""
    end = b"\n" if wire == "ollama" else b"\n\n"
    chunks: list[bytes] = []
    for event in body.split(end):
        whole = b"response." in event and b"_text.delta" not in event
        if "🌧️".encode() in event and not whole:
            before, after = event.split("🌧️".encode(), 1)
            start = before[: before.rindex(b'"') + 1]
            close = after[after.index(b'"') :]
            chunks.append(before + rb"\ud83c" + close)
            chunks.append(start + rb"\udf27\ufe0f" + after)
        else:
            chunks.append(event)
    return end.join(chunks)


@pytest.mark.parametrize("event", [b"{", b"\xff", b"[]", b'{"type":3}'])
def test_unreadable_event_ends_the_answer_with_an_error(event: bytes) -> None:
    with pytest.raises(Unreachable, match="cannot be read"):
        read_deltas("anthropic", Answer(b"data: " + event + b"\n\n", headers=SSE))


def test_data_over_several_lines_is_one_event() -> None:
    text = json.dumps({"choices": [{"delta": {"content": "Yes."}}]}, indent=1)
    lines = b"".join(b"data: " + line.encode() + b"\n" for line in text.splitlines())
    end = sse({"choices": [{"delta": {}, "finish_reason": "stop"}]})

    assert (
        words(read_deltas("openai-chat", Answer(lines + b"\n" + end, headers=SSE)))
        == "Yes."
    )


def test_ollama_is_asked_with_the_window_of_its_modelfile() -> None:
    from refold.provider.ollama import model_of

    info = {"llama.context_length": 131072}
    both = {"parameters": "stop x\nnum_ctx   16384", "model_info": info}

    assert model_of(msgspec.json.encode({"model_info": info})).window == 131072
    assert model_of(msgspec.json.encode(both)).window == 16384
    assert model_of(b"{}").window == model_of(b"<html>").window == 0
