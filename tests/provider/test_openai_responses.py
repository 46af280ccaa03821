"""OpenAI's Responses API as it is streamed, with the oddities of some servers."""

from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from refold.engine.answer_draft import Draft
from refold.errors import ProviderError, Refused, TooLong
from refold.provider.port import CallDelta, Delta, Done, TextDelta, ThinkingDelta
from refold.testing.providers import Reply
from refold.testing.wire_answers import SSE, answer, sse
from refold.testing.wire_server import Answer
from refold.values.messages import Thinking, ToolCall, ToolResult
from refold.values.usage import Usage
from tests.provider.wires import (
    message,
    open_wire,
    read_deltas,
    request,
    request_body,
    stream_deltas,
    words,
)

WIRE = "openai-responses"
SEALED = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "eHg="}
END = {"type": "response.completed", "response": {"status": "completed", "model": "g"}}


def stream(*events: dict[str, Any], end: dict[str, Any] | None = END) -> list[Delta]:
    result = (*events, end) if end else events
    return read_deltas(WIRE, Answer(b"".join(map(sse, result)), headers=SSE))


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def item(
    index: int, item: dict[str, Any], *between: dict[str, Any]
) -> list[dict[str, Any]]:
    address = {"output_index": index, "item": item}
    added, done = (
        event("output_item.added", **address),
        event("output_item.done", **address),
    )
    return [added, *between, done]


def call(n: int, arguments: str = "") -> dict[str, Any]:
    about = {"id": f"fc_{n}", "type": "function_call", "call_id": f"c{n}"}
    return {**about, "name": "look", "arguments": arguments}


def end_event(**response: Any) -> dict[str, Any]:
    return event(response.get("status", "completed"), response={"model": "g", **response})


def text(text: str) -> dict[str, Any]:
    return event("output_text.delta", delta=text)


def test_reasoning_item_is_stored_unchanged_and_its_summary_is_shown_as_thinking() -> None:
    summary = [event("reasoning_summary_part.added", summary_index=n) for n in (0, 1)]
    delta = event("reasoning_summary_text.delta", delta="Hm.")

    deltas = stream(*item(0, SEALED, summary[0], delta, summary[1], delta), text("Yes."))

    assert deltas == [
        ThinkingDelta("Hm."),
        ThinkingDelta("\n\n"),
        ThinkingDelta("Hm."),
        ThinkingDelta("", WIRE, Raw(_json(SEALED))),
        TextDelta("Yes."),
        Done(Usage(), "end", "g"),
    ]


def test_reasoning_that_cannot_be_sent_back_is_only_shown() -> None:
    bare = {"id": "rs_1", "type": "reasoning", "summary": [{"text": "Hm."}]}

    assert stream(*item(0, bare))[:-1] == [ThinkingDelta("Hm.")]


def test_open_reasoning_is_shown_as_thinking_and_stored_to_be_sent_back() -> None:
    open_item = {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }

    deltas = stream(*item(0, open_item, event("reasoning_text.delta", delta="Hm.")))

    assert deltas[:-1] == [
        ThinkingDelta("Hm."),
        ThinkingDelta("", WIRE, Raw(_json(open_item))),
    ]


def test_parallel_calls_are_distinguished_by_output_index() -> None:
    records = [event("output_item.added", output_index=n, item=call(n)) for n in (1, 2)]
    pieces = [
        event("function_call_arguments.delta", output_index=n, delta=d)
        for n, d in ((1, '{"a"'), (2, '{"b"'), (1, ":1}"), (2, ":2}"))
    ]
    done = [
        event("output_item.done", output_index=n, item=call(n, "whole")) for n in (2, 1)
    ]

    deltas = stream(*records, *pieces, *done)

    assert deltas == [
        CallDelta(0, "", "c1", "look"),
        CallDelta(1, "", "c2", "look"),
        CallDelta(0, '{"a"'),
        CallDelta(1, '{"b"'),
        CallDelta(0, ":1}"),
        CallDelta(1, ":2}"),
        Done(Usage(), "calls", "g"),
    ]


def test_items_without_output_index_are_distinguished_by_item_id() -> None:
    pieces = [
        event("output_item.added", item=call(1)),
        event("output_item.added", item=call(2)),
        event("function_call_arguments.delta", item_id="fc_1", delta="{}"),
        event("output_item.done", item=call(2, '{"b":2}')),
        event("output_item.done", item=call(1, "{}")),
    ]

    deltas = stream(*pieces)

    assert deltas[2:-1] == [CallDelta(0, "{}"), CallDelta(1, '{"b":2}')]


def test_items_that_arrive_without_deltas_are_read_from_their_done_event() -> None:
    part = {"type": "output_text", "text": "Yes."}
    said_whole = {"type": "message", "content": [part]}
    done = [
        event("output_item.done", output_index=n, item=whole)
        for n, whole in enumerate((said_whole, call(1, "{}")))
    ]

    assert stream(*done)[:-1] == [
        TextDelta("Yes."),
        CallDelta(0, "", "c1", "look"),
        CallDelta(0, "{}"),
    ]


def test_answer_that_is_only_in_the_final_event_is_read_from_there() -> None:
    output = [{"type": "message", "content": [{"text": "Yes."}]}, call(1, "{}")]

    deltas = stream(end=end_event(status="completed", output=output))

    assert words(deltas) == "Yes."
    assert deltas[-1] == Done(Usage(), "calls", "g")


def test_final_event_does_not_repeat_text_already_streamed() -> None:
    output = [{"type": "message", "content": [{"text": "Yes."}]}]

    assert words(stream(text("Yes."), end=end_event(output=output))) == "Yes."


@pytest.mark.parametrize(
    ("reason", "stop"), [("max_output_tokens", "length"), ("content_filter", "refused")]
)
def test_incomplete_answer_reports_the_reason(reason: str, stop: str) -> None:
    more = {"status": "incomplete", "incomplete_details": {"reason": reason}}

    deltas = stream(*item(0, call(0), text("Ye")), end=end_event(**more))

    why = reason if stop == "refused" else ""
    assert deltas[-1] == Done(Usage(), stop, "g", why=why)  # type: ignore[arg-type]


def test_refusal_text_is_shown_and_the_stop_reason_is_refused() -> None:
    deltas = stream(event("refusal.delta", delta="I will not."))

    assert deltas == [TextDelta("I will not."), Done(Usage(), "refused", "g")]


def test_commentary_and_final_answer_are_sent_back_with_their_phases() -> None:
    phases = ("commentary", "final_answer")
    spoken = [
        data
        for n, phase in enumerate(phases)
        for data in item(n, {"type": "message", "phase": phase}, text(f"{n}."))
    ]

    answer_draft = draft(stream(*spoken))

    assert [Thinking("", WIRE, Raw(b'{"phase":"%s"}' % p.encode())) for p in phases] == [
        part for part in answer_draft.parts if isinstance(part, Thinking)
    ]
    assert _input(answer_draft)[1:3] == [
        {"type": "message", "role": "assistant", "phase": "commentary", "content": "0."},
        {"type": "message", "role": "assistant", "phase": "final_answer", "content": "1."},
    ]


def test_reasoning_is_sent_back_unchanged_through_the_engine() -> None:
    answer_draft = draft(stream(*item(0, SEALED), *item(1, call(0, '{"a":1}'))))

    assert _input(answer_draft)[1:3] == [
        SEALED,
        {
            "type": "function_call",
            "call_id": "call-1",
            "name": "look",
            "arguments": '{"a":1}',
        },
    ]


def test_reasoning_without_a_following_item_is_not_sent_back() -> None:
    """A stopped answer ends with reasoning, which the API refuses without the item that
    follows.
    """
    alone = Thinking("", WIRE, Raw(_json(SEALED)))

    for value in (["Well.", alone], [alone, " "], [alone, alone]):
        items = _input(message("assistant", *value))
        assert SEALED not in items


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "rate_limit_exceeded", "message": "busy"}, "Overloaded"),
        ({"code": "server_error", "message": "broken"}, "Overloaded"),
        ({"code": "invalid_prompt", "message": "no"}, "BadRequest"),
        ({"code": "insufficient_quota", "message": "no money"}, "Refused"),
        ({"code": "context_length_exceeded", "message": "too big"}, "TooLong"),
        ({"code": "brand_new", "message": "odd"}, "Overloaded"),
    ],
)
@pytest.mark.parametrize("place", ["failed", "error", "nested"])
def test_error_inside_a_stream_has_the_type_of_its_http_status(
    error: dict[str, str], kind: str, place: str
) -> None:
    last = {
        "failed": end_event(status="failed", error=error),
        "error": {"type": "error", **error},
        "nested": {"type": "error", "error": error},
    }[place]

    with pytest.raises(ProviderError, match=error["message"]) as caught:
        stream(text("Hel"), end=last)

    assert type(caught.value).__name__ == kind


@pytest.mark.parametrize(
    "last",
    [
        end_event(status="cancelled"),
        end_event(status="failed"),
        event("incomplete", response={"incomplete_details": {"reason": "steered"}}),
        None,
    ],
)
def test_answer_without_a_valid_end_is_an_error(last: dict[str, Any] | None) -> None:
    with pytest.raises(ProviderError):
        stream(text("Hel"), end=last)


def test_unknown_events_and_items_are_ignored() -> None:
    deltas = stream(
        event("brand_new", delta={"not": "text"}),
        event("audio.delta", delta="base64"),
        *item(0, {"type": "web_search_call", "id": "ws"}),
        text("A"),
    )

    assert deltas[:-1] == [TextDelta("A")]


# A field that a model or an account refuses is left out from then on.

REFUSALS = {
    "summary": "Your organization must be verified to generate reasoning summaries.",
    "encrypted": "Encrypted content is not supported with this model.",
    "kept": "The encrypted content gAAA could not be verified. Reason: wrong key.",
}


def ask_after_refusals(*wordings: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the answers to two questions by a server that first refuses with these
    messages.
    """
    bodies = [_json({"error": {"message": wording}}) for wording in wordings]
    good = answer(WIRE, Reply("Yes."))
    model_request = request(
        message("user", "?"),
        message("assistant", Thinking("", WIRE, Raw(_json(SEALED))), ToolCall("call-1", "look", Raw(b"{}"))),
        message("tool", ToolResult("call-1", "clouds")),
    )  # fmt: skip

    async def main() -> tuple[list[str], list[dict[str, Any]]]:
        async with open_wire(WIRE, *(Answer(b, 400) for b in bodies), good, good) as (
            p,
            server,
        ):
            texts = [words(await stream_deltas(p, model_request)) for _ in range(2)]
            return texts, [_value(h.body) for h in server.heard]

    return anyio.run(main)


@pytest.mark.parametrize("thing", REFUSALS)
def test_responses_api_leaves_out_a_refused_feature_for_good(thing: str) -> None:
    texts, bodies = ask_after_refusals(REFUSALS[thing])

    assert texts == ["Yes.", "Yes."]
    assert len(bodies) == 3
    full, *less = [
        {
            "summary": "reasoning" in body,
            "encrypted": "include" in body,
            "kept": SEALED in body["input"],
        }
        for body in bodies
    ]
    assert all(full.values())
    assert less == [{**full, thing: False}] * 2


def test_several_features_may_be_refused_one_after_another() -> None:
    texts, bodies = ask_after_refusals(*REFUSALS.values())

    assert (texts, len(bodies)) == (["Yes.", "Yes."], 5)


def test_refusal_of_any_other_field_is_raised_and_not_retried() -> None:
    with pytest.raises(Refused, match="temperature"):
        ask_after_refusals("Unsupported parameter: 'temperature'")


def test_full_window_is_raised_even_if_the_error_mentions_a_feature() -> None:
    with pytest.raises(TooLong):
        ask_after_refusals("context_length_exceeded: ask for a shorter reasoning summary")


def test_second_refusal_of_the_same_feature_is_raised() -> None:
    with pytest.raises(Refused, match="Encrypted"):
        ask_after_refusals(REFUSALS["encrypted"], REFUSALS["encrypted"])


def test_refusal_after_streamed_text_is_raised() -> None:
    late = {"type": "error", "code": "invalid_prompt", "message": "no reasoning summary"}

    with pytest.raises(Refused, match="summary"):
        stream(text("Hel"), end=late)


def draft(deltas: list[Delta]) -> Any:
    answer_draft = Draft(1, "openai/g", lambda _model, _usage: None)
    for delta in deltas:
        answer_draft.add(delta)
    whole = answer_draft.to_answer()
    assert whole is not None
    return whole.message


def _input(answer: Any) -> list[dict[str, Any]]:
    results = [ToolResult(c.id, "clouds") for c in answer.calls]
    after = [message("tool", *results)] if results else [message("user", "And?")]
    return request_body(WIRE, request(message("user", "?"), answer, *after))["input"]


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _value(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body)
