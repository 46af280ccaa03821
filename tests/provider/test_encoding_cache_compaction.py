"""Encoded messages are not sent again after a compaction removed them."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec import Raw

from refold.engine.policies.compaction import compact_when_full
from refold.engine.prune import CompactionShares, prunable_results
from refold.journal.events.kinds import (
    Compacted,
    Delivered,
    Ended,
    Entry,
    Event,
    ModelAnswered,
    Said,
)
from refold.journal.state.fold import View, fold
from refold.provider.encoding_cache import Encoded, EncodedPiece
from refold.provider.port import Pictures
from refold.values.messages import Message, ToolCall


def encode(message: Message, pictures: Pictures) -> Iterator[EncodedPiece]:
    yield EncodedPiece(msgspec.json.encode(message.parts), message.role.encode(), b"]")


def view_after_calls(calls: int) -> View:
    news: list[Event] = [Said("Look."), Delivered((1,))]
    for n in range(calls):
        call = ToolCall(f"call-{n}", "look", Raw(b"{}"))
        news += [
            ModelAnswered(Message("assistant", (call,))),
            Ended(call.id, "done", "x" * 900),
        ]
    return fold(Entry(seq, event) for seq, event in enumerate(news, start=1))


@pytest.mark.parametrize("keep", [0, 1, 3, 9])
@pytest.mark.parametrize("again", [False, True])
def test_cached_encoding_after_compaction_equals_a_fresh_encoding(
    keep: int, again: bool
) -> None:
    view, warm = view_after_calls(9), Encoded(encode)
    warm.join(view.conversation.messages)
    for kind in ("prune", "full") if again else ("prune",):
        seq = view.conversation.messages[-2].seq if kind == "full" else 0
        event = Compacted(
            kind, "", prunable_results(view, keep), seq, "What was said.", "A summary."
        )  # type: ignore[arg-type]
        view = fold([Entry(view.seq + 1, event)], view)

        assert warm.join(view.conversation.messages) == Encoded(encode).join(
            view.conversation.messages
        )


def test_cached_encoding_after_undoing_a_compaction_equals_a_fresh_one() -> None:
    before, warm = view_after_calls(9), Encoded(encode)
    after = fold(
        [Entry(before.seq + 1, Compacted("prune", "", prunable_results(before, 3)))], before
    )
    warm.join(after.conversation.messages)

    assert warm.join(before.conversation.messages) == Encoded(encode).join(
        before.conversation.messages
    )


def test_messages_before_the_first_pruned_one_are_not_encoded_again() -> None:
    part_counts: list[int] = []

    def counting(message: Message, pictures: Pictures) -> Iterator[EncodedPiece]:
        part_counts.append(len(message.parts))
        yield from encode(message, pictures)

    view, warm = view_after_calls(9), Encoded(counting)
    warm.join(view.conversation.messages)
    part_counts.clear()
    lines = prunable_results(view, 3)[:2]  # the newest two of those that could go
    result = fold([Entry(view.seq + 1, Compacted("prune", "", lines))], view)
    warm.join(result.conversation.messages)

    assert len(part_counts) == len(view.conversation.messages) - 2 - 2 * 4


def test_conversation_with_nothing_to_prune_is_not_compacted() -> None:
    assert compact_when_full(CompactionShares())(view_after_calls(3)) is None
