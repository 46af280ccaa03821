"""Limits how many messages a server sends on its own: notices, progress, changes, requests.

Each kind has a number of messages at once and a rate. Messages beyond them are dropped, with
one notice. If a dropped message says that a list or a resource has changed, the change is still
noted. `message_limits` limits the size of one message, and `answer_repair` repairs it.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from msgspec import Struct

from refold.mcp.answer_repair import repair
from refold.mcp.message_limits import limit_parts

_Incoming = SessionMessage | Exception
Streams = tuple[
    MemoryObjectReceiveStream[_Incoming], MemoryObjectSendStream[SessionMessage]
]


class Allowance(Struct, frozen=True):
    """A limit for one kind of message.

    After `at_once` messages, `each_second` more are accepted in each second. `noun` is the word
    for these messages in a sentence.
    """

    noun: str
    at_once: int
    each_second: float


_LOG_ALLOWANCE = Allowance("log messages", 100, 10.0)
_PROGRESS_ALLOWANCE = Allowance("reports of progress", 200, 20.0)
_CHANGES_ALLOWANCE = Allowance("changes of its lists", 10, 1.0)
_NOTICES_ALLOWANCE = Allowance("notices", 100, 20.0)
_REQUESTS_ALLOWANCE = Allowance("requests", 100, 20.0)
_UPDATED_METHOD = "notifications/resources/updated"
_ALLOWANCE_OF_METHOD = {
    "notifications/message": _LOG_ALLOWANCE,
    "notifications/progress": _PROGRESS_ALLOWANCE,
    "notifications/tools/list_changed": _CHANGES_ALLOWANCE,
    "notifications/prompts/list_changed": _CHANGES_ALLOWANCE,
    "notifications/resources/list_changed": _CHANGES_ALLOWANCE,
}


class FloodGate:
    """Decides which messages of one connection are beyond the limits and must be dropped.

    `report` gets a notice about dropped messages. `on_list_change` is called if a dropped
    message reported a changed list. `on_resource_update` is called with the URI if a dropped
    message reported a changed resource.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        on_list_change: Callable[[], None],
        on_resource_update: Callable[[str], None],
    ) -> None:
        self.report = report
        self._on_list_change, self._on_resource_update = on_list_change, on_resource_update
        self._buckets = dict[str, _Bucket]()

    def passes(self, message: types.JSONRPCMessage) -> bool:
        """Return whether the message is within the limits. Answers to requests have no limit.

        The first dropped message of each kind is reported. A dropped message about changed lists
        or a changed resource still counts as a change.
        """
        match message:
            case types.JSONRPCNotification():
                allowance = _ALLOWANCE_OF_METHOD.get(message.method, _NOTICES_ALLOWANCE)
            case types.JSONRPCRequest():
                allowance = _REQUESTS_ALLOWANCE
            case _:
                return True
        bucket = self._buckets.setdefault(allowance.noun, _Bucket(allowance))
        if bucket.take(anyio.current_time()):
            return True
        if not bucket.overflowed:
            bucket.overflowed = True
            self.report(
                f"sends more than {allowance.each_second:g} {allowance.noun} in a second: "
                "the rest are left out"
            )
        if allowance is _CHANGES_ALLOWANCE:
            self._on_list_change()
        elif message.method == _UPDATED_METHOD:
            params = message.params or {}
            self._on_resource_update(str(params.get("uri", "")))
        return False


@asynccontextmanager
async def screen_streams(
    transport: AbstractAsyncContextManager[Streams], gate: FloodGate
) -> AsyncGenerator[Streams]:
    """Yield the streams of a transport, without the incoming messages that `gate` drops."""
    async with transport as (read, write):
        forward, incoming = anyio.create_memory_object_stream[_Incoming](0)
        async with anyio.create_task_group() as group:
            group.start_soon(_forward, read, forward, gate)
            try:
                yield incoming, write
            finally:
                incoming.close()
                group.cancel_scope.cancel()


async def _forward(
    read: MemoryObjectReceiveStream[_Incoming],
    session: MemoryObjectSendStream[_Incoming],
    gate: FloodGate,
) -> None:
    """Pass messages that `gate` accepts to the session, limited and repaired."""
    async with session:
        try:
            async for item in read:
                if isinstance(item, Exception):
                    await session.send(item)
                elif gate.passes(item.message):
                    repaired = repair(limit_parts(item.message), gate.report)
                    if repaired is not item.message:
                        item = SessionMessage(repaired, item.metadata)
                    await session.send(item)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the session has ended


class _Bucket:
    """A token bucket: each message takes a token, and tokens are added at the rate."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance, self._left = allowance, float(allowance.at_once)
        self._filled = 0.0  # when tokens were added last; 0: never
        self.overflowed = False

    def take(self, now: float) -> bool:
        """Take a token. Return False if there is none, so that the message must be dropped.

        The tokens that have been added since the last call are counted first.
        """
        if not self._filled:
            self._filled = now
        gained = (now - self._filled) * self._allowance.each_second
        self._left = min(self._allowance.at_once, self._left + gained)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
