"""Decides which calls of the webhooks of schedules wait for a run, and which are refused.

A request is identified by its signature and is accepted once. `CallMemory` remembers every
request that could still be accepted. An older request is refused whatever the local clock says,
so setting the clock back makes no request valid again. This module has only values and rules,
and uses no file: `schedule_book` records calls and claims their runs, `client.webhooks` checks
signatures.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

WINDOW_SECONDS = 300.0  # largest difference of a request's time from the local clock
MAX_BODY_CHARS = 20_000  # of a request: the rest is not stored
CallRefusal: TypeAlias = Literal["repeated", "too old", "too many"]
# Limits of one schedule.
_MAX_WAITING_CALLS = 10  # calls without a run
_MAX_CALLS_PER_HOUR, _HOUR_SECONDS = 60, 3_600.0


class WebhookSet(Struct, frozen=True):
    """The name of a schedule's webhook was set; "" removes it. Waiting calls are kept."""

    id: int
    name: str


class HookCalled(Struct, frozen=True):
    """A webhook was called. Recorded before the call is answered. `number` counts from 1.

    `signed` is the time that the request states, `proof` is a hash of its signature.
    """

    id: int
    number: int
    now: float
    signed: float
    proof: str
    body: str = ""


class WaitingCall(Struct, frozen=True):
    """A webhook call that has no run yet."""

    number: int
    now: float
    body: str = ""


class _RecentCall(Struct, frozen=True):
    now: float
    signed: float
    proof: str


class CallMemory(Struct, frozen=True):
    """The recent calls of one schedule. A new call is compared with them."""

    seen: tuple[_RecentCall, ...] = ()
    newest: float = 0.0  # latest time that a request stated

    def refusal(
        self, call: HookCalled, waiting: tuple[WaitingCall, ...]
    ) -> CallRefusal | None:
        """Return why this call is refused, or None if it is accepted."""
        if any(earlier.proof == call.proof for earlier in self.seen):
            return "repeated"
        if call.signed < _oldest_accepted(self.newest):
            return "too old"
        recent_count = sum(
            abs(call.now - earlier.now) < _HOUR_SECONDS for earlier in self.seen
        )
        if len(waiting) >= _MAX_WAITING_CALLS or recent_count >= _MAX_CALLS_PER_HOUR:
            return "too many"
        return None

    def with_call(self, call: HookCalled) -> "CallMemory":
        """Return the memory with this call.

        A call is forgotten once it is more than an hour old and a repetition would be refused
        as too old.
        """
        newest = max(self.newest, call.signed)
        oldest_accepted = _oldest_accepted(newest)
        seen = (*self.seen, _RecentCall(call.now, call.signed, call.proof))
        remembered = [
            earlier
            for earlier in seen
            if earlier.signed >= oldest_accepted
            or abs(call.now - earlier.now) < _HOUR_SECONDS
        ]
        return CallMemory(tuple(remembered), newest)


def _oldest_accepted(newest: float) -> float:
    """Return the time since which all requests are remembered.

    An older request is refused, because it might repeat a forgotten request. `newest` is the
    latest time that a request stated.
    """
    return newest - 2 * WINDOW_SECONDS
