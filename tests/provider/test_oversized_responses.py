"""Responses made to exhaust memory: compressed a thousand times, or without an end."""

import zlib
from collections.abc import AsyncGenerator

import anyio
import pytest

from refold.engine.answer_draft import ENDLESS_RESPONSE, MAX_RESPONSE_CHARS, Draft
from refold.engine.collect import Collector
from refold.engine.world import Model
from refold.errors import ProviderError, Unreachable
from refold.provider.port import CallDelta, Delta, Request, TextDelta, ThinkingDelta
from refold.testing.wire_answers import SSE
from refold.testing.wire_server import Answer
from refold.values.growing import Log
from refold.values.messages import StoredMessage
from tests.provider.wires import read_deltas

PIECE = "word " * 2_000
MIB = 1024 * 1024


def gzip_bomb(mebibytes: int) -> bytes:
    """Some MiB of comments of a stream, as gzip: each MiB packed once, and repeated."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    line = b": " + b" " * (MIB - 3) + b"\n"
    start = packer.compress(line) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(line) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + again * (mebibytes - 1)


def test_compressed_answer_is_limited_in_unpacked_size() -> None:
    packed = gzip_bomb(1_024)

    assert len(packed) < 2 * MIB
    with pytest.raises(Unreachable, match="sent more than 64 MB as one answer"):
        read_deltas(
            "anthropic", Answer(packed, headers={**SSE, "content-encoding": "gzip"})
        )


def fill(draft: Draft, piece: Delta) -> None:
    for _ in range(2 * MAX_RESPONSE_CHARS // len(PIECE)):
        draft.add(piece)


@pytest.mark.parametrize(
    "piece", [TextDelta(PIECE), ThinkingDelta(PIECE), CallDelta(0, PIECE, name="look")]
)
def test_endless_answer_is_cut_off_and_charged(piece: Delta) -> None:
    draft = Draft(1, "x/y", lambda _, usage: usage.output / 1e6)

    with pytest.raises(ProviderError, match="more than 2,097,152 characters"):
        fill(draft, piece)

    failed = draft.to_failure(ENDLESS_RESPONSE, "ProviderError")
    assert (
        len(failed.partial_text) < 101_000
    )  # the text that is sent back to the model is bounded, too
    assert failed.usage is not None
    assert failed.usage.output > 500_000  # and it was not free
    assert failed.cost


class Endless:
    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        while True:
            yield TextDelta(PIECE)


def test_endless_answer_outside_the_conversation_is_cut_off() -> None:
    request = Request(Log[StoredMessage]())

    with pytest.raises(ProviderError, match="more than 2,097,152 characters"):
        anyio.run(Collector(Model(Endless())).collect, request)
