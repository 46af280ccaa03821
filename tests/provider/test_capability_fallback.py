"""A feature that a model refuses is left out, recognized by its provider's own words."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from refold.errors import Overloaded, Refused
from refold.provider.capability_fallback import CapabilityFallback
from refold.provider.catalog import find
from refold.provider.port import (
    Delta,
    Done,
    RequestSent,
    ResponseBytes,
    Retrying,
    TextDelta,
)
from refold.testing.providers import Reply
from refold.testing.wire_answers import SSE, WireName, answer, sse
from refold.testing.wire_server import Answer
from refold.values.messages import Thinking, ToolCall, ToolResult
from tests.provider.wires import (
    BLOB,
    CAT,
    MODEL,
    PICTURES,
    TOOLS,
    message,
    open_wire,
    request,
    stream_deltas,
    words,
)

SCHEMA = Raw(b'{"type":"object","properties":{"rain":{"type":"boolean"}}}')
DATA = "iVBORyBjYXQ="  # the cat
WITH: dict[str, dict[str, Any]] = {
    "pictures": {"pictures": PICTURES},
    "schema": {"schema": SCHEMA},
    "effort": {"effort": "max"},
    "low": {"effort": "low"},
    "cache": {"session": "s-1"},
}
MARKS = {
    "pictures": DATA,
    "schema": '"rain"',
    "effort": '"max"',
    "low": '"low"',
    "cache": '"prompt_cache_key"',
}
GEMINIS = {"effort": '"XHIGH"', "low": '"LOW"'}

# Each is the message of a real server, shortened.
REFUSALS: list[tuple[WireName, str, str]] = [
    ("anthropic", "pictures", "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum"),
    ("anthropic", "pictures", "'claude-2.1' does not support image input."),
    ("anthropic", "schema", "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"),
    ("anthropic", "effort", "This model does not support effort level 'max'. Supported levels: high, low, medium."),
    ("openai-responses", "pictures", "Invalid value: 'input_image'. Supported values are: 'input_text'."),
    ("openai-responses", "schema", "Invalid schema for response_format 'answer': schema must have a 'type' key."),
    ("openai-responses", "effort", "Unsupported value: 'max' is not supported with the 'gpt-5' model. Supported values are: 'low', 'medium', and 'high'."),
    ("openai-responses", "low", "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
    ("openai-responses", "cache", "Unknown parameter: 'prompt_cache_key'."),
    ("openai-chat", "pictures", "Invalid content type. image_url is only supported by certain models."),
    ("openai-chat", "pictures", "unknown variant `image_url`, expected `text`"),
    ("openai-chat", "pictures", "'messages.0' : for 'role:user' the following must be satisfied[('messages.0.content' : value must be a string)]"),
    ("openai-chat", "schema", "This response_format type is unavailable now"),
    ("openai-chat", "effort", "[{'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be 'low', 'medium' or 'high'\", 'input': 'max'}]"),
    ("openai-chat", "low", "Unrecognized request argument supplied: reasoning_effort"),
    ("gemini", "pictures", "Image input modality is not enabled for models/gemma-3-1b-it"),
    ("gemini", "schema", "Function calling with a response mime type: 'application/json' is unsupported"),
    ("gemini", "effort", "Invalid value at 'generation_config.thinking_config.thinking_level', \"XHIGH\""),
    ("gemini", "low", "Thinking level is not supported for this model."),
    ("ollama", "pictures", "this model does not support image input"),
    ("ollama", "schema", "invalid format: expected \"json\" or a JSON schema"),
    ("ollama", "effort", "\"m-1\" does not support thinking"),
]  # fmt: skip


def make_request(**fields: Any) -> Any:
    return request(message("user", "?", CAT), **fields)


def converse(
    wire: WireName, *answers: Answer, model: str = "m-1", **options: Any
) -> tuple[list[str], list[str]]:
    """Return what comes of two questions, and what was sent to get there."""
    good = answer(wire, Reply("Yes."))
    says = {**MODEL, "thinking": {"values": ["low", "max"]}}

    async def main() -> tuple[list[str], list[str]]:
        opening = open_wire(wire, *answers, good, good, model=model, says=says)
        async with opening as (provider, server):
            asking_for = make_request(model=model, **options)
            texts = [words(await stream_deltas(provider, asking_for)) for _ in range(2)]
            return texts, [h.body.decode() for h in server.heard]

    return anyio.run(main)


def refusal(wording: str, status: int = 400) -> Answer:
    error = {"error": {"message": wording, "type": "invalid_request_error"}}
    return Answer(msgspec.json.encode(error), status)


@pytest.mark.parametrize(("wire", "thing", "wording"), REFUSALS)
def test_refused_feature_is_left_out_of_all_later_requests(
    wire: WireName, thing: str, wording: str
) -> None:
    texts, (first, *later) = converse(wire, refusal(wording), **WITH[thing])

    mark = GEMINIS.get(thing, MARKS[thing]) if wire == "gemini" else MARKS[thing]
    assert texts == ["Yes.", "Yes."]
    assert mark in first
    assert [mark in body for body in later] == [False, False]
    if thing == "pictures":
        assert all("[image cat.png, which cannot be shown here]" in b for b in later)


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses", "openai-chat"])
def test_max_effort_that_is_refused_is_lowered_step_by_step(wire: WireName) -> None:
    no = refusal("effort: this value is not supported")

    texts, bodies = converse(wire, no, no, no, effort="max")

    asked_for = [
        next((level for level in ("xhigh", "max", "high") if f'"{level}"' in body), "")
        for body in bodies
    ]
    assert texts == ["Yes.", "Yes."]
    assert asked_for == ["max", "xhigh", "high", "", ""]


def test_claude_without_adaptive_thinking_gets_a_budget_then_no_thinking() -> None:
    adaptive = refusal("adaptive thinking is not supported on this model")
    thinking = refusal("'m-1' does not support thinking")

    texts, bodies = converse("anthropic", adaptive, thinking, effort="high")

    values = [msgspec.json.decode(body).get("thinking", {}).get("type") for body in bodies]
    assert texts == ["Yes.", "Yes."]
    assert values == ["adaptive", "enabled", None, None]


def test_claude_with_a_lower_output_limit_gets_smaller_max_tokens() -> None:
    no = refusal("max_tokens: 64000 > 32768, which is the maximum allowed for this model")

    _, bodies = converse("anthropic", no, effort="high")

    assert [msgspec.json.decode(b)["max_tokens"] for b in bodies] == [
        64_000,
        32_000,
        32_000,
    ]


def test_a_refused_effort_level_does_not_disable_other_levels() -> None:
    no = refusal("reasoning_effort must be one of 'none' or 'high'")
    good = answer("openai-chat", Reply("Yes."))

    async def main() -> list[dict[str, Any]]:
        async with open_wire("openai-chat", no, good, good, good) as (provider, server):
            for effort in ("low", "high", "low"):
                await stream_deltas(provider, make_request(effort=effort))
            return [msgspec.json.decode(h.body) for h in server.heard]

    values = [body.get("reasoning_effort") for body in anyio.run(main)]
    assert values == ["low", None, "high", None]


def test_gemini_that_refuses_images_in_results_gets_them_beside_the_results() -> None:
    no = refusal("`function_response.parts` is not supported for this model.")
    good = answer("gemini", Reply("Yes."))
    conversation = request(
        message("user", "?"),
        message("assistant", ToolCall("call-1", "look", Raw(b"{}"))),
        message("tool", ToolResult("call-1", "a cat", images=(CAT,))),
        pictures=PICTURES,
    )

    async def main() -> list[Any]:
        async with open_wire("gemini", no, good) as (provider, server):
            await stream_deltas(provider, conversation)
            return [msgspec.json.decode(h.body)["contents"][2] for h in server.heard]

    inside, beside = anyio.run(main)
    assert "parts" in inside["parts"][0]["functionResponse"]
    assert [*beside["parts"][0], *beside["parts"][1]] == ["functionResponse", "inlineData"]


@pytest.mark.parametrize("wire", ["openai-chat", "ollama"])
def test_server_error_500_about_an_image_is_retried_without_images(wire: WireName) -> None:
    broken = refusal("image input is not supported - you may need the mmproj", 500)

    texts, bodies = converse(wire, broken, pictures=PICTURES)

    assert texts == ["Yes.", "Yes."]
    assert [DATA in body for body in bodies] == [True, False, False]


def test_rate_limit_that_mentions_images_does_not_remove_them() -> None:
    busy = refusal("Rate limit reached on images per minute", 429)

    with pytest.raises(Overloaded, match="images per minute"):
        converse("openai-chat", busy, pictures=PICTURES)


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses", "openai-chat", "gemini", "ollama"])  # fmt: skip
def test_refusal_about_features_that_were_not_sent_is_raised(wire: WireName) -> None:
    with pytest.raises(Refused, match="image and effort and schema"):
        converse(wire, refusal("no image and effort and schema of yours"))


def test_refusal_inside_a_stream_is_recognized() -> None:
    error = {
        "error": {"message": "No endpoints found that support image input", "code": 404}
    }
    late = Answer(sse(error), headers=SSE)

    texts, bodies = converse("openai-chat", late, pictures=PICTURES)

    assert (texts, len(bodies)) == (["Yes.", "Yes."], 3)


def test_feature_refused_by_one_model_is_still_sent_to_another() -> None:
    no = refusal("'m-1' does not support image input.")
    good = answer("anthropic", Reply("Yes."))

    async def main() -> list[bool]:
        async with open_wire("anthropic", no, good, good) as (provider, server):
            for model in ("m-1", "m-2"):
                await stream_deltas(provider, make_request(pictures=PICTURES, model=model))
            return [DATA in h.body.decode() for h in server.heard]

    assert anyio.run(main) == [True, False, True]


def test_loading_notice_does_not_prevent_the_fallback_but_answer_text_does() -> None:
    """A model that is loading may still refuse; one that has begun its answer may not."""

    def answer_without(first: Delta) -> list[Delta]:
        concessions = CapabilityFallback({"pictures": "image"})
        answers = iter([[first, Refused("no image here")], [Done()]])

        async def ask() -> AsyncGenerator[Delta, None]:
            for item in next(answers):
                if isinstance(item, Refused):
                    raise item
                yield item

        async def main() -> list[Delta]:
            return [delta async for delta in concessions.stream("m-1", ask)]

        return anyio.run(main)

    loading, text = (
        Retrying(0.0, "loading"),
        "m-1 takes no images: they are described in words",
    )
    assert answer_without(loading) == [loading, Retrying(0.0, text), Done()]
    with pytest.raises(Refused, match="no image here"):
        answer_without(TextDelta("Y"))


def test_capability_fallback_works_while_requests_are_traced() -> None:
    no, good = refusal("does not support image input."), answer("anthropic", Reply("Yes."))
    traced = make_request(pictures={BLOB: PICTURES[BLOB]}, trace=True, tools=TOOLS)

    async def main() -> tuple[list[Any], list[bytes]]:
        async with open_wire("anthropic", no, good) as (provider, server):
            return await stream_deltas(provider, traced), [h.body for h in server.heard]

    result, bodies = anyio.run(main)
    assert [d.body for d in result if isinstance(d, RequestSent)] == bodies
    assert [d.body for d in result if isinstance(d, ResponseBytes)] == [no.body, good.body]


SIGNED = Thinking("Hm.", "anthropic", Raw(b'{"signature":"c2ln"}'))
ROW = (
    message("user", "?"),
    message("assistant", SIGNED, ToolCall("call-1", "look", Raw(b"{}"))),
    message("tool", ToolResult("call-1", "clouds")),
)


@pytest.mark.parametrize(
    "wording",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-sonnet-4-5"])
def test_thinking_signed_by_another_account_is_left_out_and_thinking_stays_on(
    wording: str, model: str
) -> None:
    good = answer("anthropic", Reply("Yes."))
    talks = (ROW, (*ROW, message("assistant", SIGNED, "Yes."), message("user", "And?")))

    async def main() -> list[dict[str, Any]]:
        opening = open_wire("anthropic", refusal(wording), good, good)
        async with opening as (provider, server):
            for conversation in talks:
                await stream_deltas(
                    provider, request(*conversation, effort="high", model=model)
                )
            return [msgspec.json.decode(h.body) for h in server.heard]

    bodies = anyio.run(main)

    assert ["c2ln" in str(body) for body in bodies] == [True, False, False]
    thinks = [body.get("thinking", {}).get("type") for body in bodies]
    if model == "claude-sonnet-5-5":
        assert thinks == ["adaptive"] * 3
        assert [body["output_config"] for body in bodies] == [{"effort": "high"}] * 3
    else:  # a row of calls must begin with a thought, or has none
        assert thinks == ["enabled", None, "enabled"]


def test_concurrent_requests_with_the_same_refusal_drop_one_feature_only() -> None:
    concessions = CapabilityFallback[str]({"schema": "schema", "effort": "schema|effort"})
    both_asked = anyio.Event()
    texts: list[frozenset[str]] = []

    async def ask() -> AsyncGenerator[Delta, None]:
        without = concessions.features_to_leave_out("m")
        texts.append(without)
        if not without:
            if len(texts) == 2:
                both_asked.set()
            await both_asked.wait()
            raise Refused("no schema, please")
        yield Done()

    async def run_story() -> None:
        async def one() -> None:
            assert [d async for d in concessions.stream("m", ask)][-1] == Done()

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)

    anyio.run(run_story)

    assert concessions.features_to_leave_out("m") == {"schema"}
    assert texts == [frozenset(), frozenset(), {"schema"}, {"schema"}]


CALLED = (
    message("user", "A taxi, please."),
    message("assistant", Thinking("Where to?"), ToolCall("c-1", "book", Raw(b"{}"))),
    message("tool", ToolResult("c-1", "Booked.")),
    message("user", "And a bus?"),
)
# The refusal of a server, the kind of server, and the fallback.
WANTED = [
    ("Extra inputs are not permitted: body.stream_options.include_usage", '"stream_options"', ""),
    ("Tool call id was c-1 but must be a-z, A-Z, 0-9, with a length of 9.", '"c-1"', ""),
    ("thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
     "", '"reasoning_content":"Where to?"'),
    ("After the optional system message, conversation roles must alternate user/assistant/user",
     "", '"content":"(read)"'),
    ("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
     '"max_tokens"', '"max_completion_tokens"'),
]  # fmt: skip


@pytest.mark.parametrize(("wording", "before", "after"), WANTED)
def test_rejected_request_field_is_replaced_in_all_later_requests(
    wording: str, before: str, after: str
) -> None:
    good = answer("openai-chat", Reply("Yes."))
    model_request = request(*CALLED, max_output=100)

    async def main() -> list[str]:
        opening = open_wire("openai-chat", refusal(wording), good, good, spec=find("vllm"))
        async with opening as (provider, server):
            assert [
                words(await stream_deltas(provider, model_request)) for _ in range(2)
            ] == ["Yes."] * 2
            return [h.body.decode() for h in server.heard]

    first, *later = anyio.run(main)

    assert before in first
    assert not after or after not in first
    assert [not before or before not in body for body in later] == [True, True]
    assert [after in body for body in later] == [True, True]
