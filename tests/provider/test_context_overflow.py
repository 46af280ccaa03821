"""A request that is too long for the window, as each server says it."""

import json

import pytest

from refold.engine.policies.compaction import compact_when_full
from refold.engine.policies.conversation import converse
from refold.engine.prune import CompactionShares
from refold.errors import BadRequest, Overloaded, ProviderError, Refused, TooLong
from refold.journal.events.kinds import Compacted
from refold.journal.store.port import MemoryStore
from refold.provider.error_mapping import (
    Peer,
    ResponseStart,
    StreamError,
    failure,
    stream_failure,
)
from refold.testing.providers import ScriptedProvider
from tests.engine.house import WEATHER, entries, run, world

PEER = Peer("P", "https://p.test", "p")
TOO_LONG = [
    "This model's maximum context length is 32768 tokens. However, you requested 33000 tokens",
    "request (60179 tokens) exceeds the available context size (60160 tokens)",
    "Input does not fit in context length.",
    "Your input exceeds the context window of this model.",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "invalid params, context window exceeds limit (2013)",
    "This model's maximum prompt length is 131072 but the request contains 137000 tokens.",
    "prompt token count of 300000 exceeds the limit of 128000",
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)",
    "Input is too long for requested model.",
    "Prompt exceeds max length",
    "Cannot truncate prompt with n_keep (40000) >= n_ctx (4096)",
    "The decoder prompt (length 40000) is longer than the maximum model length of 32768.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512. Given: 603",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 5000",
    "The input token count (2845475) exceeds the maximum number of tokens allowed (1048576).",
    "You have exceeded your token limit for this model",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "You passed 99073 input tokens. Please reduce the length of the input prompt.",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "total message size 10176584 exceeds limit 2097152",
    "Total prompt tokens (15993) exceeds the per-batch cap (8192 = prefill_step_size 8192)",
    "Prompt 超长",
    '{"error":{"message":"input length and `max_tokens` exceed context limit: 196758 + 8192"}}',
]
SOMETHING_ELSE = [
    "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens",
    "max_tokens must be less than or equal to 8192",
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
    "tools.20.custom.input_schema: input_schema does not support oneOf",
    "messages: text content blocks must be non-empty",
    "'tools[0].function.name': string too long. Expected a string with maximum length 64",
    "temperature: range 0 to 1",
]


def refusal(status: int, message: str, **fields: str) -> ProviderError:
    body = json.dumps({"error": {"message": message, **fields}}).encode()
    return failure(PEER, ResponseStart(status, {}, body, "m"))


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("words", TOO_LONG)
def test_overflow_is_recognized_by_the_wording_of_the_error(
    words: str, status: int
) -> None:
    assert isinstance(refusal(status, words), TooLong)


def test_overflow_is_recognized_in_an_error_that_a_gateway_quotes() -> None:
    raw = json.dumps({"error": {"message": TOO_LONG[0], "code": 400}})
    error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}
    provider_error = failure(
        PEER, ResponseStart(400, {}, json.dumps({"error": error}).encode(), "m")
    )

    assert isinstance(provider_error, TooLong)
    assert f"Provider returned error: {TOO_LONG[0]}" in str(provider_error)


@pytest.mark.parametrize("words", SOMETHING_ELSE)
def test_other_refusals_are_not_recognized_as_overflow(words: str) -> None:
    assert type(refusal(400, words)) is BadRequest


@pytest.mark.parametrize(
    "code", ["context_length_exceeded", "exceed_context_size_error", "request_too_large"]
)
def test_overflow_is_recognized_by_the_error_code(code: str) -> None:
    assert isinstance(refusal(400, "no", code=code), TooLong)
    assert isinstance(refusal(400, "no", type=code), TooLong)


def test_overflow_is_recognized_by_the_http_status() -> None:
    assert isinstance(refusal(413, "no"), TooLong)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Limit 15000, Used 11972. Please try again in 5.289s. Visit our page", 5.289),
        ("Please try again in 1m30s.", 90.0),
        ("Please try again in 340ms.", 0.34),
        ("Please try again in 20 seconds.", 20.0),
        ("Please try again in a moment.", None),
    ],
)
def test_retry_wait_is_parsed_from_the_text_of_a_rate_limit(
    words: str, seconds: float | None
) -> None:
    error = refusal(429, words)

    assert isinstance(error, Overloaded)
    assert error.retry_after == (seconds and pytest.approx(seconds))


def test_overflow_is_recognized_in_a_stream() -> None:
    error = StreamError(400, "Your input exceeds the context window of this model.")

    assert isinstance(stream_failure(PEER, error, "m"), TooLong)


def test_request_larger_than_the_per_minute_limit_counts_as_too_long() -> None:
    words = "Request too large for model `m` on tokens per minute (TPM): Limit 6000"

    assert isinstance(refusal(429, words), TooLong)
    assert not isinstance(refusal(429, "Rate limit reached for model `m`"), TooLong)


def test_unknown_refusal_of_a_longer_request_is_retried_once_after_compaction() -> None:
    policies = (compact_when_full(CompactionShares()), converse)
    odd = BadRequest("P refused the request (400): no")
    once = ScriptedProvider([WEATHER], odd, "Rain.")
    twice = ScriptedProvider([WEATHER], odd, odd)
    store = MemoryStore()

    well = run(store, world(once, policies=policies), "Umbrella?")
    badly = run(MemoryStore(), world(twice, policies=policies), "Umbrella?")

    assert (well.turn.outcome, well.turn.answer) == ("answered", "Rain.")
    assert [type(e.event) for e in entries(store)].count(Compacted) == 1
    assert (badly.turn.outcome, badly.turn.reason) == ("failed", str(odd))


@pytest.mark.parametrize("error", [BadRequest("no"), Refused("no")])
def test_unknown_refusal_of_the_first_request_ends_the_turn(
    error: ProviderError,
) -> None:
    provider = ScriptedProvider(error, "Rain.")
    policies = (compact_when_full(CompactionShares()), converse)

    view = run(MemoryStore(), world(provider, policies=policies), "Umbrella?")

    assert (view.turn.outcome, len(provider.heard)) == ("failed", 1)
