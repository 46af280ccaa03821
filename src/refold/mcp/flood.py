"""Limits the messages that a server sends by itself: notices, progress, changes.

Each kind has a burst and a rate. What exceeds them is dropped, with one notice. Nothing
important is lost: progress and log messages are only shown, and a changed list or resource is
noted without the message. `message_limits` bounds each message, and `answer_repair` repairs it.
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
    """A limit: `at_once` messages, then `each_second`. `what` names them in a sentence."""

    what: str
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
    """The limits of one connection.

    `report` is called with a notice when messages are dropped, `on_list_change` when a dropped
    message said that a list has changed, and `on_resource_update` with the URI of a resource if its
    update is dropped.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        on_list_change: Callable[[], None],
        on_resource_update: Callable[[str], None],
    ) -> None:
        self.say, self._changed, self._updated = report, on_list_change, on_resource_update
        self._buckets = dict[str, _Bucket]()

    def passes(self, message: types.JSONRPCMessage) -> bool:
        """Return True if the session gets the message. Answers to requests always pass."""
        match message:
            case types.JSONRPCNotification():
                allowance = _ALLOWANCE_OF_METHOD.get(message.method, _NOTICES_ALLOWANCE)
            case types.JSONRPCRequest():
                allowance = _REQUESTS_ALLOWANCE
            case _:
                return True
        bucket = self._buckets.setdefault(allowance.what, _Bucket(allowance))
        if bucket.take(anyio.current_time()):
            return True
        if not bucket.overflowed:
            bucket.overflowed = True
            self.say(
                f"sends more than {allowance.each_second:g} {allowance.what} in a second: "
                "the rest are left out"
            )
        if allowance is _CHANGES_ALLOWANCE:
            self._changed()
        elif message.method == _UPDATED_METHOD:
            self._updated(str((message.params or {}).get("uri", "")))
        return False


@asynccontextmanager
async def screen_streams(
    transport: AbstractAsyncContextManager[Streams], gate: FloodGate
) -> AsyncGenerator[Streams]:
    """Return the streams of a transport, without the messages beyond the limits."""
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
    async with session:
        try:
            async for item in read:
                if isinstance(item, Exception):
                    await session.send(item)
                elif gate.passes(item.message):
                    sound = repair(limit_parts(item.message), gate.say)
                    same = sound is item.message
                    await session.send(
                        item if same else SessionMessage(sound, item.metadata)
                    )
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the session has ended


class _Bucket:
    def __init__(self, allowance: Allowance) -> None:
        self._allowance, self._left, self._filled = allowance, float(allowance.at_once), 0.0
        self.overflowed = False

    def take(self, now: float) -> bool:
        if not self._filled:
            self._filled = now
        gained = (now - self._filled) * self._allowance.each_second
        self._left = min(self._allowance.at_once, self._left + gained)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
