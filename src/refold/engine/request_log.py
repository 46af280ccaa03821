"""Logs model calls exactly as they are sent and received, if `log_requests` is set.

Each request holds the whole conversation, so a journal of complete requests would grow with
the square of the steps. The beginning that a request shares with the last one to the same
target is therefore not stored again: the event has its length.
"""

from typing import Protocol

from msgspec import Struct

from refold.journal.events.kinds import RequestLogged
from refold.provider.port import RequestSent, ResponseBytes

# Bounded, because a provider may have an address for each request.
_MAX_TARGETS = 16


class BlobWriter(Protocol):
    async def put(self, blob: bytes) -> str: ...


class _Call(Struct):
    to: str
    body: bytes
    answer: bytearray


class Trace:
    """The request log of one session.

    It collects what was sent and received; `drain` makes events of it.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        # The last body by where it went, the newest last.
        self._before: dict[str, bytes] = {}

    def add_delta(self, delta: RequestSent | ResponseBytes) -> None:
        match delta:
            case RequestSent(to, body):
                self._calls.append(_Call(to, body, bytearray()))
            case ResponseBytes(body) if self._calls:
                self._calls[-1].answer += body
            case _:
                pass

    async def drain(self, blobs: BlobWriter) -> list[RequestLogged]:
        """Store the bytes of the calls since the last drain, and return their events."""
        before = dict(self._before)
        events: list[RequestLogged] = []
        for call in self._calls:
            same = _common_prefix(before.pop(call.to, b""), call.body)
            before[call.to] = call.body
            request = await blobs.put(call.body[same:])
            answer = await blobs.put(bytes(call.answer)) if call.answer else ""
            events.append(RequestLogged(call.to, request, answer, same))
        # Only once all are stored: a later event may refer only to recorded bytes.
        self._before, self._calls = dict([*before.items()][-_MAX_TARGETS:]), []
        return events


def _common_prefix(left: bytes, right: bytes) -> int:
    """The length of the common prefix. Binary search, for speed."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
