"""Calls of the webhooks of schedules: which wait for a run, and which are refused.

A request is known by its signature and is taken once. What is remembered covers every time
that is still accepted, and anything older than that is refused whatever the clock here says:
a clock that is set back makes no request good again. It is values and rules, without a file:
`schedule_book` records calls and claims their runs, `client.webhooks` checks signatures.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

WINDOW_SECONDS = 300.0  # seconds that the time of a request may be away from the clock here
MAX_BODY_CHARS = 20_000  # characters that are kept of one
CallRefusal: TypeAlias = Literal["repeated", "too old", "too many"]
_MAX_WAITING_CALLS = 10  # calls of a schedule that have no run yet
_MAX_CALLS_PER_HOUR, _HOUR_SECONDS = (
    60,
    3_600.0,
)  # calls of a schedule that are taken in an hour


class WebhookSet(Struct, frozen=True):
    """`name` "": there is none any more. Calls under an earlier one that wait stay."""

    id: int
    name: str


class HookCalled(Struct, frozen=True):
    """Recorded before it is answered. `number` counts those of the schedule from 1.

    `signed` is the time that the request says, and `proof` a hash of its signature.
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
    """What is remembered of the calls of one schedule."""

    seen: tuple[_Seen, ...] = ()
    newest: float = 0.0  # time that a request said

    def refusal(
        self, call: HookCalled, waiting: tuple[WaitingCall, ...]
    ) -> CallRefusal | None:
        """Why this call is not taken; None: it is."""
        if any(earlier.proof == call.proof for earlier in self.seen):
            return "repeated"
        if call.signed < self._oldest:
            return "too old"
        lately = sum(abs(call.now - earlier.now) < _HOUR_SECONDS for earlier in self.seen)
        if len(waiting) >= _MAX_WAITING_CALLS or lately >= _MAX_CALLS_PER_HOUR:
            return "too many"
        return None

    def after(self, call: HookCalled) -> "CallMemory":
        newest = max(self.newest, call.signed)
        memory = CallMemory((*self.seen, _Seen(call.now, call.signed, call.proof)), newest)
        calls = tuple(
            earlier
            for earlier in memory.seen
            if earlier.signed >= memory._oldest
            or abs(call.now - earlier.now) < _HOUR_SECONDS
        )
        return CallMemory(calls, newest)

    @property
    def _oldest(self) -> float:
        """A request that says an earlier time may be one that is forgotten."""
        return self.newest - 2 * WINDOW_SECONDS
