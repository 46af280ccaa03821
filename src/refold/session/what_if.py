"""Compares a replay with a change to a replay without it, and estimates a live continuation.

Pure.

The change is another prompt or setting. A difference from the journal that both replays have is
not an effect of the change. `session.replay` makes the two runs.
"""

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.engine.call_cost import CHARS_PER_TOKEN
from refold.journal.events.child_events import ChildEnded
from refold.journal.events.kinds import (
    Compacted,
    Entry,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Settled,
    SystemPromptSet,
    TurnEnded,
)
from refold.prompts.system_text import part_of
from refold.session.replay_difference import Divergence, Replayed
from refold.values.usage import Spent, Usage

# Returns the US dollars for a model's usage.
Price: TypeAlias = Callable[[str, Usage], float | None]


_EVENTS_OF_CALLS = ("Judged", "Started", "Ended")


class FirstDifference(Struct, frozen=True):
    """Where the two runs begin to differ: before event `seq`, in step `step` of turn
    `turn`.

    `divergence` is the event that differs; None means that the request itself differs. A live
    continuation begins before event `live`. If a call differs, `live` is the request that was
    answered with the call.
    """

    seq: int
    turn: int
    step: int
    live: int
    divergence: Divergence | None = None


class Comparison(Struct, frozen=True):
    """The effect of the change. If `first` is None, the change has no effect."""

    first: FirstDifference | None
    divergences: tuple[Divergence, ...] = ()
    briefings: tuple[tuple[int, str], ...] = ()


def compare(entries: Sequence[Entry], plain: Replayed, changed: Replayed) -> Comparison:
    """Return the effect of a change on a replay.

    `plain` is the replay without the change, and `changed` the replay with the change.
    """
    known = frozenset(plain.briefings)
    briefings = tuple(item for item in changed.briefings if item not in known)
    divergences = tuple(d for d in changed.divergences if d not in plain.divergences)
    candidates = list[FirstDifference]()
    if divergences:
        earliest = divergences[0]
        live = _live_start(entries, earliest)
        candidates.append(
            FirstDifference(earliest.seq, earliest.turn, earliest.step, live, earliest)
        )
    if briefings:
        # The prompt differs, and so does the first request that has it.
        seq, _ = briefings[0]
        request = _request_after(entries, seq)
        if request is not None:
            candidates.append(request)
    first = min(candidates, key=lambda candidate: candidate.seq, default=None)
    return Comparison(first, divergences, briefings)


def _request_after(entries: Sequence[Entry], seq: int) -> FirstDifference | None:
    """Return the position of the first request to the model after event `seq`."""
    steps, turn = 0, 0
    for entry in entries:
        if entry.turn != turn:
            steps, turn = 0, entry.turn
        if isinstance(entry.event, ModelAsked):
            steps += 1
            if entry.seq > seq:
                return FirstDifference(entry.seq, turn, steps, entry.seq)
    return None


def _live_start(entries: Sequence[Entry], divergence: Divergence) -> int:
    """Return the event before which a live run begins; for a call, the request before it."""
    if divergence.event not in _EVENTS_OF_CALLS:
        return divergence.seq
    before = (entry for entry in reversed(entries) if entry.seq < divergence.seq)
    asked = (entry.seq for entry in before if isinstance(entry.event, ModelAsked))
    return next(asked, divergence.seq)


class Continuation(Struct, frozen=True):
    """An estimate of what the rest of a turn uses if it is run live.

    It assumes as many requests as were recorded.
    """

    requests: int
    spent: Spent


def continuation(
    entries: Sequence[Entry], first: FirstDifference, more_chars: int, price: Price
) -> Continuation:
    """Estimate the usage of a live continuation from the recorded usage.

    The estimate assumes that each request is longer by `more_chars`, and that the provider
    has cached nothing of the first request. Prices are the current ones.
    """
    requests = 0
    spent = Spent()
    more_tokens = math.ceil(more_chars / CHARS_PER_TOKEN)
    for entry in _rest_of_turn(entries, first.live):
        match entry.event:
            case ModelAnswered(usage=recorded_usage, model=model):
                usage = _changed_usage(recorded_usage, more_tokens, opening=requests == 0)
                requests += 1
                spent = spent.plus(usage, price(model, usage))
            case Settled(usage=Usage() as usage, model=model):
                spent = spent.plus(usage, price(model, usage))
            case ModelFailed(usage=Usage() as usage, model=model):
                spent = spent.plus(usage, price(model, usage))
            case ChildEnded(spent=below):
                spent += below
            case Compacted(size_before=before, size_after=after) if first.seq == entry.seq:
                # This compaction does not happen in the live run.
                more_tokens += (before - after) // CHARS_PER_TOKEN
            case _:
                pass
    return Continuation(requests, spent)


def _rest_of_turn(entries: Sequence[Entry], seq: int) -> Iterator[Entry]:
    """Yield the entries from event `seq` to the end of its turn."""
    for entry in entries:
        if entry.seq >= seq:
            yield entry
            if isinstance(entry.event, TurnEnded):
                return


def _changed_usage(usage: Usage, more: int, *, opening: bool) -> Usage:
    """Return the usage of a request that is longer by `more` tokens.

    The provider has cached nothing of the `opening` request. In later requests the additional
    tokens are cached, if anything is.
    """
    if opening:
        fresh = max(0, usage.input + more)
        return replace(usage, fresh=fresh, cached=0, cache_write=0, estimated=True)
    if usage.cached:
        return replace(usage, cached=max(0, usage.cached + more), estimated=True)
    return replace(usage, fresh=max(0, usage.fresh + more), estimated=True)


def prompt_diff(then: SystemPromptSet, now: SystemPromptSet) -> list[str]:
    """Return the lines of the system text that differ, part by part."""
    lines: list[str] = []
    for name in dict.fromkeys((*dict(then.parts), *dict(now.parts))):
        before, after = (part_of(prompt, name).splitlines() for prompt in (then, now))
        if before != after:
            names = f"{name}, then", f"{name}, now"
            lines += difflib.unified_diff(before, after, *names, n=0, lineterm="")
    return lines
