"""Gemini's streams, and what has to be returned on which part."""

from typing import Any

import anyio
import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec import Raw

from refold.engine.answer_draft import Draft
from refold.errors import Overloaded, ProviderError, Refused, TooLong
from refold.provider.gemini import MISSING_SIGNATURE, path
from refold.provider.port import CallDelta, Delta, Done, TextDelta, ThinkingDelta
from refold.testing.providers import Reply
from refold.testing.wire_answers import SSE, answer, sse
from refold.testing.wire_server import Answer
from refold.values.messages import Message, Text, ToolCall, ToolResult
from refold.values.usage import Usage
from tests.provider.wires import (
    CONVERSATION,
    message,
    open_wire,
    read_deltas,
    request,
    request_body,
    stream_deltas,
    words,
)

COUNTS = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 7,
    "totalTokenCount": 112,
}


def chunk(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    content = {"content": {"role": "model", "parts": [*parts]}}
    return {"candidates": [{**content, "index": 0, **fields}]}


def stream(*chunks: dict[str, Any], finish: str = "STOP", **fields: Any) -> list[Delta]:
    last = {**chunk(finishReason=finish, **fields), "usageMetadata": COUNTS}
    return raw(*chunks, {**last, "modelVersion": "g"})


def raw(*chunks: dict[str, Any]) -> list[Delta]:
    return read_deltas("gemini", Answer(b"".join(map(sse, chunks)), headers=SSE))


def call_part(name: str, n: int = 0, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"n": n}, **fields}}


DONE = Done(Usage(fresh=40, cached=60, output=12, reasoning=7), "end", "g")


def test_gemini_thinking_tokens_count_as_output_and_cached_tokens_as_input() -> None:
    assert stream(chunk({"text": "Yes."})) == [TextDelta("Yes."), DONE]


def test_gemini_calls_of_one_function_without_ids_stay_separate() -> None:
    deltas = stream(
        chunk(call_part("look", 1), call_part("look", 2)), chunk(call_part("look", 1))
    )

    assert deltas[:-1] == [
        CallDelta(0, '{"n":1}', "", "look"),
        CallDelta(1, '{"n":2}', "", "look"),
        CallDelta(2, '{"n":1}', "", "look"),
    ]
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].stop == "calls"


def test_gemini_call_without_arguments_gets_an_empty_object() -> None:
    assert stream(chunk({"functionCall": {"name": "look"}}))[0] == CallDelta(
        0, "{}", "", "look"
    )


def test_gemini_ids_and_signatures_stay_with_their_calls() -> None:
    first = {**call_part("look", 1, id="a"), "thoughtSignature": "c2ln"}

    deltas = stream(chunk(first, call_part("book", 2, id="b")))

    assert deltas[:-1] == [
        CallDelta(0, '{"n":1}', "a", "look", "gemini", Raw(b'{"thoughtSignature":"c2ln","id":"a"}')),
        CallDelta(1, '{"n":2}', "b", "book", "gemini", Raw(b'{"id":"b"}')),
    ]  # fmt: skip


def test_every_gemini_part_is_sent_back_with_its_own_signature() -> None:
    parts = [
        [{"text": "Clouds?", "thought": True}],
        [{"text": "Let me "}, {"text": "look."}],
        [{"text": "Signed.", "thoughtSignature": "b25l"}],
        [{"text": "Not signed."}],
        [
            {**call_part("look", 1, id="a"), "thoughtSignature": "dHdv"},
            call_part("look", 2),
        ],
        [{"text": "", "thoughtSignature": "dGhyZWU="}],
    ]

    answer_draft = draft(stream(*(chunk(*part) for part in parts)))

    assert _contents(answer_draft)[1] == snapshot(
        {
            "role": "model",
            "parts": [
                {"text": "Let me look."},
                {"text": "Signed.", "thoughtSignature": "b25l"},
                {"text": "Not signed."},
                {
                    "functionCall": {"id": "a", "name": "look", "args": {"n": 1}},
                    "thoughtSignature": "dHdv",
                },
                {"functionCall": {"name": "look", "args": {"n": 2}}},
                {"text": "", "thoughtSignature": "dGhyZWU="},
            ],
        }
    )


def test_only_signed_gemini_thoughts_are_sent_back() -> None:
    signed = {"text": "Clouds?", "thought": True, "thoughtSignature": "c2ln"}
    open_thought = {"text": "Rain?", "thought": True}

    answer_draft = draft(
        stream(chunk(signed), chunk({"text": "Yes."}), chunk(open_thought))
    )

    assert _contents(answer_draft)[1]["parts"] == [signed, {"text": "Yes."}]


def test_gemini_signature_after_text_is_sent_back_as_a_separate_part() -> None:
    last = {"text": "", "thoughtSignature": "c2ln"}

    deltas = stream(chunk({"text": "Yes."}), chunk(last))

    assert deltas[:2] == [
        TextDelta("Yes."),
        ThinkingDelta("", "gemini", Raw(b'{"thoughtSignature":"c2ln","text":""}')),
    ]
    assert _contents(draft(deltas))[1]["parts"] == [{"text": "Yes."}, last]


def test_gemini_arguments_with_a_lone_surrogate_or_a_huge_number_are_kept() -> None:
    body = rb'{"functionCall":{"name":"look","args":{"a":"\ud83c","b":123456789012345678901234567890}}}'
    whole = b'data: {"candidates":[{"content":{"parts":[%s]},"finishReason":"STOP"}]}\n\n'

    deltas = read_deltas("gemini", Answer(whole % body, headers=SSE))

    assert isinstance(deltas[0], CallDelta)
    assert set(msgspec.json.decode(deltas[0].arguments)) == {"a", "b"}


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refused"),
        ("RECITATION", "refused"),
        ("PROHIBITED_CONTENT", "refused"),
        ("BLOCKLIST", "refused"),
        ("SPII", "refused"),
        ("BRAND_NEW", "end"),
    ],
)
def test_every_gemini_finish_reason_maps_to_a_stop_reason(finish: str, stop: str) -> None:
    delta = stream(chunk({"text": "Ye"}), finish=finish)[-1]

    assert isinstance(delta, Done)
    assert delta.stop == stop


@pytest.mark.parametrize(
    ("finish", "kind", "says"),
    [
        ("MALFORMED_FUNCTION_CALL", Overloaded, "a call that cannot be read"),
        ("UNEXPECTED_TOOL_CALL", Overloaded, "a tool that it was not given"),
        ("TOO_MANY_TOOL_CALLS", Refused, "too many tools"),
        ("MISSING_THOUGHT_SIGNATURE", Refused, "without its signature"),
        ("OTHER", Overloaded, "does not say why"),
    ],
)
def test_gemini_finish_reason_without_an_answer_is_an_error_with_the_reason(
    finish: str, kind: type[ProviderError], says: str
) -> None:
    with pytest.raises(kind, match=f"{says}.*{finish}.*in its words"):
        stream(chunk({"text": "Ye"}), finish=finish, finishMessage="in its words")


def test_blocked_gemini_prompt_is_a_refusal_with_the_reason() -> None:
    feedback = {"blockReason": "SAFETY", "blockReasonMessage": "Not that."}

    plain = raw({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": COUNTS})
    explained = raw({"promptFeedback": feedback, "usageMetadata": COUNTS})

    structs = msgspec.structs.replace(DONE, stop="refused", model="")
    assert plain == [msgspec.structs.replace(structs, why="SAFETY")]
    assert explained == [msgspec.structs.replace(structs, why="Not that.")]


def test_gemini_refusal_gives_the_reason_of_the_provider() -> None:
    deltas = stream(
        chunk({"text": "Ye"}), finish="SPII", finishMessage="A number of yours."
    )

    assert isinstance(deltas[-1], Done)
    assert (deltas[-1].stop, deltas[-1].why) == ("refused", "A number of yours.")


def test_gemini_stream_that_closes_without_a_finish_reason_is_an_error() -> None:
    with pytest.raises(ProviderError, match="broke off before its end"):
        raw(chunk({"text": "Ye"}))


def test_finish_reason_repeated_in_every_chunk_does_not_end_the_stream_early() -> None:
    deltas = stream(chunk({"text": "A"}, finishReason="STOP"), chunk({"text": "B"}))

    assert words(deltas) == "AB"


def test_gemini_error_in_the_middle_of_a_stream_is_raised() -> None:
    with pytest.raises(Overloaded, match="overloaded"):
        raw(chunk({"text": "Ye"}), {"error": {"code": 503, "message": "overloaded"}})


def refusal(status: int, message: str, kind: str, *details: dict[str, Any]) -> bytes:
    error = {"code": status, "message": message, "status": kind, "details": [*details]}
    return msgspec.json.encode({"error": error})


def read_error(answer: Answer) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read_deltas("gemini", answer)
    return caught.value


@pytest.mark.parametrize("listed", [False, True])
def test_gemini_errors_have_the_same_types_as_those_of_other_providers(
    listed: bool,
) -> None:
    def error(status: int, *details: Any) -> ProviderError:
        body = refusal(status, *details)
        return read_error(Answer(b"[%s]" % body if listed else body, status))

    info = {"@type": "…/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    retry = {"@type": "…/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    key = error(400, "API key not valid.", "INVALID_ARGUMENT", info)
    model = error(404, "models/m-1 is not found for v1beta", "NOT_FOUND")
    quota = error(429, "You exceeded your quota", "RESOURCE_EXHAUSTED", {}, retry)
    full = error(400, "The input token count (9) exceeds the maximum", "INVALID_ARGUMENT")

    assert "refused the key in GEMINI_API_KEY" in str(key)
    assert "does not know the model 'm-1'" in str(model)
    assert isinstance(quota, Overloaded)
    assert quota.retry_after == 34.5
    assert isinstance(full, TooLong)


def test_google_key_in_an_error_is_masked() -> None:
    body = refusal(400, "bad AIzaSyA-0123456789abcdefghijklmnopqrstuv", "INVALID_ARGUMENT")

    assert "AIza" not in str(read_error(Answer(body, 400)))


@pytest.mark.parametrize(
    ("model", "url_path"),
    [
        ("gemini-3", "/v1beta/models/gemini-3:streamGenerateContent?alt=sse"),
        ("models/gemini-3", "/v1beta/models/gemini-3:streamGenerateContent?alt=sse"),
        ("tunedModels/mine", "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("a b\n?é", "/v1beta/models/a%20b%0A%3F%C3%A9:streamGenerateContent?alt=sse"),
    ],
)
def test_gemini_request_path_contains_the_model(model: str, url_path: str) -> None:
    assert path(model) == url_path


@pytest.mark.parametrize(
    ("model", "thinks", "stands_in"),
    [
        ("gemini-2.0-flash", False, False),
        ("gemini-2.5-pro", True, False),
        ("gemini-3.8-flash", True, True),
        ("gemini-flash-latest", True, True),
        ("gemma-4-31b-it", False, False),
    ],
)
def test_older_gemini_models_are_not_asked_for_unsupported_features(
    model: str, thinks: bool, stands_in: bool
) -> None:
    calls = (ToolCall(f"call-{n}", "look", Raw(b"{}"), "toolu_1") for n in (1, 2))
    results = (ToolResult(f"call-{n}", "clouds") for n in (1, 2))
    conversation = (
        message("user", "?"),
        message("assistant", *calls),
        message("tool", *results),
    )

    body = request_body("gemini", request(*conversation, model=model))

    signed = [part.get("thoughtSignature") for part in body["contents"][1]["parts"]]
    assert ("generationConfig" in body) == thinks
    assert signed == [MISSING_SIGNATURE if stands_in else None, None]


def test_refused_signatures_are_left_out_of_all_later_requests() -> None:
    body = refusal(400, "Corrupted thought signature.", "INVALID_ARGUMENT")
    good = answer("gemini", Reply("Yes."))

    async def main() -> list[str]:
        async with open_wire("gemini", Answer(body, 400), good, good) as (provider, server):
            for _ in range(2):
                await stream_deltas(provider, request(*CONVERSATION))
            return [h.body.decode() for h in server.heard]

    first, *later = anyio.run(main)

    assert "Y2FsbA==" in first
    assert MISSING_SIGNATURE not in first
    assert ["Y2FsbA==" in b for b in later] == [False, False]
    assert [b.count(MISSING_SIGNATURE) for b in later] == [1, 1]
    assert ['"id":"g-1"' in b for b in later] == [True, True]


def test_gemini_model_that_cannot_think_is_asked_without_thinking() -> None:
    body = refusal(400, "Thinking is not enabled for this model", "INVALID_ARGUMENT")
    good = answer("gemini", Reply("Yes."))

    async def main() -> list[bool]:
        async with open_wire("gemini", Answer(body, 400), good) as (provider, server):
            await stream_deltas(provider)
            return [b"includeThoughts" in h.body for h in server.heard]

    assert anyio.run(main) == [True, False]


def draft(deltas: list[Delta]) -> Message:
    answer_draft = Draft(1, "gemini/g", lambda _model, _usage: None)
    for delta in deltas:
        answer_draft.add(delta)
    whole = answer_draft.to_answer()
    assert whole is not None
    return whole.message


def _contents(answer: Message) -> list[dict[str, Any]]:
    results = [ToolResult(c.id, "clouds") for c in answer.calls]
    after = Message("tool", tuple(results)) if results else Message("user", (Text("?"),))
    return request_body("gemini", request(message("user", "?"), answer, after))["contents"]
