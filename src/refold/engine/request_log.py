"""Logs model calls exactly as they are sent and received, if `log_requests` is set.

Each request contains the whole conversation, so the space for complete requests would grow with
the square of the number of steps. If a request begins with the same bytes as the last one to
the same target, only the length of that beginning and the rest are stored.
"""

from typing import Protocol

from msgspec import Struct

from refold.journal.events.kinds import RequestLogged
from refold.provider.port import RequestSent, ResponseBytes

# Targets that are remembered. The number is limited, because a provider may have an address
# for each request.
_MAX_TARGETS = 16


class BlobWriter(Protocol):
    async def put(self, blob: bytes) -> str:
        """Store bytes as a blob, and return its name."""
        ...


class _Call(Struct):
    to: str
    body: bytes
    answer: bytearray


class Trace:
    """The request log of one session.

    It collects what was sent and received, until `drain` makes events of that.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        # The last request body for each target, the newest last.
        self._last_bodies: dict[str, bytes] = {}

    def add_delta(self, delta: RequestSent | ResponseBytes) -> None:
        """Begin a call with its request, or add received bytes to the last call."""
        match delta:
            case RequestSent(to, body):
                self._calls.append(_Call(to, body, bytearray()))
            case ResponseBytes(body) if self._calls:
                self._calls[-1].answer += body
            case _:
                pass

    async def drain(self, blobs: BlobWriter) -> list[RequestLogged]:
        """Store the bytes of the model calls since `drain` was last called, and return their
        events.
        """
        last_bodies = dict(self._last_bodies)
        events: list[RequestLogged] = []
        for call in self._calls:
            last_body = last_bodies.pop(call.to, b"")
            last_bodies[call.to] = call.body  # now the newest target
            same_bytes = _common_prefix(last_body, call.body)
            request = await blobs.put(call.body[same_bytes:])
            answer = await blobs.put(bytes(call.answer)) if call.answer else ""
            event = RequestLogged(call.to, request, answer, same_prefix=same_bytes)
            events.append(event)
        newest_targets = list(last_bodies.items())[-_MAX_TARGETS:]
        # Only now, when all bytes are stored: a later event may refer only to recorded bytes.
        self._last_bodies = dict(newest_targets)
        self._calls = []
        return events


def _common_prefix(left: bytes, right: bytes) -> int:
    """Return the length of the common prefix. It uses binary search for speed."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
