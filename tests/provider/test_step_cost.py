"""A request at step 2,000 costs what one at step 10 costs: nothing old is read."""

from typing import Any, overload

import anyio
import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.provider.catalog import find
from refold.provider.encoding_cache import IncrementalFold, body_with
from refold.provider.spec import ProviderSpec
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, ToolCall, ToolResult
from tests.provider.wires import (
    message,
    open_wire,
    request,
    request_body,
    spec_of,
    stream_deltas,
)

SPECS = [
    *(spec_of(w) for w in ("anthropic", "openai-responses", "openai-chat", "gemini", "ollama")),
    find("mistral"),
]  # fmt: skip
MODEL = "claude-sonnet-4-5"  # is asked to think, where it may; for others a name like any


class Counted(Log[StoredMessage]):
    """Counts the messages that are read."""

    __slots__ = ("looks",)

    def __init__(self, items: list[StoredMessage]) -> None:
        super().__init__(items)
        self.looks = 0

    def __iter__(self) -> Any:
        self.looks += len(self)
        return super().__iter__()

    def __reversed__(self) -> Any:
        return (self[index] for index in range(len(self) - 1, -1, -1))

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StoredMessage, ...]: ...
    def __getitem__(self, index: int | slice) -> StoredMessage | tuple[StoredMessage, ...]:
        getitem = super().__getitem__(index)
        self.looks += len(getitem) if isinstance(getitem, tuple) else 1
        return getitem


def conversation_of_steps(steps: int) -> list[Message]:
    """Return a person's words and a row of calls."""
    messages = [message("user", "Go.")]
    for n in range(steps):
        call = ToolCall(f"call-{n}", "look", Raw(b"{}"))
        messages.append(message("assistant", call))
        messages.append(message("tool", ToolResult(call.id, "clouds")))
    return messages


def count_read_messages(spec: ProviderSpec, steps: int) -> int:
    """Return how many messages are read for the step after this number of steps."""
    conversation = [
        StoredMessage(n, m) for n, m in enumerate(conversation_of_steps(steps + 1), start=1)
    ]
    before, after = Counted(conversation[:-2]), Counted(conversation)
    wire: WireName = spec.wire
    good = answer(wire, Reply("Yes."))

    async def main() -> None:
        opening = open_wire(wire, good, good, model=MODEL, spec=spec)
        async with opening as (provider, _):
            for messages in (before, after):
                model_request = request(model=MODEL, effort="low")
                await stream_deltas(provider, replace(model_request, messages=messages))

    anyio.run(main)
    return after.looks


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_step_reads_as_many_messages_in_a_long_conversation_as_in_a_short_one(
    spec: ProviderSpec,
) -> None:
    assert 0 < count_read_messages(spec, 1_000) <= count_read_messages(spec, 10)


def join_texts() -> tuple[IncrementalFold[str], list[int]]:
    """Joins the texts of a conversation, and counts the messages that it read for that."""
    seqs: list[int] = []

    def step(made: str, message: StoredMessage) -> str:
        seqs.append(message.seq)
        return made + message.message.text

    return IncrementalFold("", step), seqs


def conversation(text: str) -> list[StoredMessage]:
    return [StoredMessage(n, message("user", word)) for n, word in enumerate(text)]


def test_cached_fold_of_a_conversation_reads_each_message_once() -> None:
    joined, numbers = join_texts()
    messages = conversation("abcd")

    folds = [joined.fold(Log(messages[:n])) for n in (0, 1, 3, 3, 4)]

    assert folds == ["", "a", "abc", "abc", "abcd"]
    assert numbers == [0, 1, 2, 3]


def test_cached_fold_of_a_rewound_or_replaced_conversation_begins_again() -> None:
    joined, _ = join_texts()
    messages, other = conversation("abcd"), conversation("efgh")

    talks = [
        messages,
        messages[:2],
        [*messages[:2], *other[2:]],
        other,
        messages[:3],
        [],
        messages[:2],
        [messages[0], *other],
    ]

    assert [joined.fold(Log(t)) for t in talks] == [
        "".join(s.message.text for s in t) for t in talks
    ]


def test_mistral_request_after_a_rewind_equals_a_fresh_one() -> None:
    """The message between a result and the user's next message is neither repeated nor
    lost.
    """
    messages = [*conversation_of_steps(1), message("user", "And?"), message("assistant", "Yes."), message("user", "Good.")]  # fmt: skip
    spoken = [StoredMessage(n, m) for n, m in enumerate(messages, start=1)]
    mistral, good = find("mistral"), answer("openai-chat", Reply("Yes."))
    lengths = (4, 6, 3, 4, 6)

    async def main() -> list[bytes]:
        opening = open_wire("openai-chat", *[good] * len(lengths), spec=mistral)
        async with opening as (provider, server):
            for n in lengths:
                await stream_deltas(provider, replace(request(), messages=Log(spoken[:n])))
            return [h.body for h in server.heard]

    fresh = [
        request_body("openai-chat", request(*messages[:n]), spec=mistral) for n in lengths
    ]
    assert [msgspec.json.decode(body) for body in anyio.run(main)] == fresh
    assert [str(body).count("(read)") for body in fresh] == [1, 1, 0, 1, 1]


@pytest.mark.parametrize("fields", [{}, {"model": "m", "tools": []}])
@pytest.mark.parametrize(
    ("encoded", "held"),
    [((), []), ((b"",), []), ((b"1", b""), [1]), ((b"", b"1,2"), [1, 2]), ((b"1", b"2,3"), [1, 2, 3])],
)  # fmt: skip
def test_encoded_messages_are_the_last_field_of_a_request_body(
    fields: dict[str, object], encoded: tuple[bytes, ...], held: list[int]
) -> None:
    body = body_with(fields, "items", *encoded)

    assert msgspec.json.decode(body) == {**fields, "items": held}
