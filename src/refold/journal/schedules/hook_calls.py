"""Calls of the webhooks of schedules: which wait for a run, and which are refused.

A request is identified by its signature and is accepted once. The memory covers all times
that are still accepted, and an older request is refused whatever the local clock says, so
setting the clock back makes no request valid again. Only values and rules, without a file:
`schedule_book` records calls and claims their runs, `client.webhooks` checks signatures.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

WINDOW_SECONDS = 300.0  # largest difference of a request's time from the local clock
MAX_BODY_CHARS = 20_000  # stored of a request
CallRefusal: TypeAlias = Literal["repeated", "too old", "too many"]
_MAX_WAITING_CALLS = 10  # of a schedule, without a run yet
# Of a schedule.
_MAX_CALLS_PER_HOUR, _HOUR_SECONDS = 60, 3_600.0


class WebhookSet(Struct, frozen=True):
    """`name` "" removes the webhook. Calls of an earlier one that wait are kept."""

    id: int
    name: str


class HookCalled(Struct, frozen=True):
    """A call, recorded before it is answered. `number` counts a schedule's calls from 1.

    `signed` is the time that the request states, `proof` a hash of its signature.
    """

    id: int
    number: int
    now: float
    signed: float
    proof: str
    body: str = ""


class WaitingCall(Struct, frozen=True):
    """A call that has no run yet."""

    number: int
    now: float
    body: str = ""


class _Seen(Struct, frozen=True):
    now: float
    signed: float
    proof: str


class CallMemory(Struct, frozen=True):
    """The recent calls of one schedule, against which a new call is checked."""

    seen: tuple[_Seen, ...] = ()
    newest: float = 0.0  # latest time that a request stated

    def refusal(
        self, call: HookCalled, waiting: tuple[WaitingCall, ...]
    ) -> CallRefusal | None:
        """Why this call is refused, or None if it is accepted."""
        if any(earlier.proof == call.proof for earlier in self.seen):
            return "repeated"
        if call.signed < self._oldest_accepted:
            return "too old"
        lately = sum(abs(call.now - earlier.now) < _HOUR_SECONDS for earlier in self.seen)
        if len(waiting) >= _MAX_WAITING_CALLS or lately >= _MAX_CALLS_PER_HOUR:
            return "too many"
        return None

    def with_call(self, call: HookCalled) -> "CallMemory":
        newest = max(self.newest, call.signed)
        memory = CallMemory((*self.seen, _Seen(call.now, call.signed, call.proof)), newest)
        calls = tuple(
            earlier
            for earlier in memory.seen
            if earlier.signed >= memory._oldest_accepted
            or abs(call.now - earlier.now) < _HOUR_SECONDS
        )
        return CallMemory(calls, newest)

    @property
    def _oldest_accepted(self) -> float:
        """The earliest time that is remembered: an older request may be a forgotten one."""
        return self.newest - 2 * WINDOW_SECONDS
