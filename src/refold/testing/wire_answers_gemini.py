"""What the Gemini API would stream for an answer, written by hand."""

from collections.abc import Iterator
from typing import Any

import msgspec

from refold.testing.scripted import Reply
from refold.testing.wire_answers import pieces, stop_of, used_by


def gemini_events(reply: Reply) -> Iterator[dict[str, Any]]:
    """Its chunks: calls come whole, the first one signed, and every chunk counts."""
    used = used_by(reply)
    counts = {
        "promptTokenCount": used.input,
        "cachedContentTokenCount": used.cached,
        "totalTokenCount": used.input + used.output,
    }
    about = {"modelVersion": "gemini-1", "responseId": "r-1"}
    for part in _parts(reply):
        said = {"content": {"role": "model", "parts": [part]}, "index": 0}
        yield {"candidates": [said], "usageMetadata": counts, **about}
    stops = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS"}
    last = {
        "content": {"role": "model", "parts": [{"text": ""}]},
        "finishReason": stops.get(stop_of(reply), "SAFETY"),
        "index": 0,
    }
    written = {
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
    }
    yield {"candidates": [last], "usageMetadata": {**counts, **written}, **about}


def _parts(reply: Reply) -> Iterator[dict[str, Any]]:
    for piece in pieces(reply.thinking):
        yield {"text": piece, "thought": True}
    for piece in pieces(reply.text):
        yield {"text": piece}
    for n, (name, arguments) in enumerate(reply.calls):
        call = {"id": f"g-{n}", "name": name, "args": msgspec.Raw(arguments.encode())}
        signed = {} if n else {"thoughtSignature": "c2lnbmVk"}
        yield {"functionCall": call, **signed}
