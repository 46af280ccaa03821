"""Compares a replay under a change with one without it, and estimates a live continuation. Pure.

What differs in both is not blamed on the change. `session.replay` makes the two runs.
"""

import difflib
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

Price: TypeAlias = Callable[[str, Usage], float | None]  # US dollars, of a model's usage


_EVENTS_OF_CALLS = ("Judged", "Started", "Ended")


class FirstDifference(Struct, frozen=True):
    """Where the two runs part: before event `seq`, in step `step` of turn `turn`.

    `divergence` is the event that differs; None: the request itself. A live continuation
    begins before event `live`: the request, if what differs is about a call of its response.
    """

    seq: int
    turn: int
    step: int
    live: int
    divergence: Divergence | None = None


class Comparison(Struct, frozen=True):
    """What the change makes different. `first` None: nothing."""

    first: FirstDifference | None
    divergences: tuple[Divergence, ...] = ()
    briefings: tuple[tuple[int, str], ...] = ()


def compare(entries: Sequence[Entry], plain: Replayed, changed: Replayed) -> Comparison:
    """Compare a replay with the change to one without it."""
    known = frozenset(plain.briefings)
    briefings = tuple(item for item in changed.briefings if item not in known)
    divergences = tuple(d for d in changed.divergences if d not in plain.divergences)
    places = [
        FirstDifference(d.seq, d.turn, d.step, _live_start(entries, d), d)
        for d in divergences[:1]
    ]
    if briefings and (request := _request_after(entries, briefings[0][0])):
        places.append(request)
    # A request with another prompt comes before what is decided on its response.
    return Comparison(
        min(places, key=lambda place: place.seq, default=None), divergences, briefings
    )


def _request_after(entries: Sequence[Entry], seq: int) -> FirstDifference | None:
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
    if divergence.event not in _EVENTS_OF_CALLS:
        return divergence.seq
    before = (entry for entry in reversed(entries) if entry.seq < divergence.seq)
    asked = (entry.seq for entry in before if isinstance(entry.event, ModelAsked))
    return next(asked, divergence.seq)


class Continuation(Struct, frozen=True):
    """About what the rest of a turn uses if it is run live, with as many requests."""

    requests: int
    spent: Spent


def continuation(
    entries: Sequence[Entry], first: FirstDifference, more_chars: int, price: Price
) -> Continuation:
    """Estimate from the recorded usage. Each request is longer by `more_chars`.

    The provider has nothing of the first one in its cache. Prices are those of now.
    """
    spent, requests = Spent(), 0
    more = -(-more_chars // CHARS_PER_TOKEN)
    for entry in _rest_of_turn(entries, first.live):
        match entry.event:
            case ModelAnswered(usage=usage, model=model):
                usage = _changed_usage(usage, more, opening=not requests)
                requests += 1
                spent = spent.plus(usage, price(model, usage))
            case Settled(usage=Usage() as usage, model=model):
                spent = spent.plus(usage, price(model, usage))
            case ModelFailed(usage=Usage() as usage, model=model):
                spent = spent.plus(usage, price(model, usage))
            case ChildEnded(spent=below):
                spent += below
            case Compacted(size_before=before, size_after=after) if first.seq == entry.seq:
                more += (before - after) // CHARS_PER_TOKEN  # it does not happen now
            case _:
                pass
    return Continuation(requests, spent)


def _rest_of_turn(entries: Sequence[Entry], seq: int) -> Iterator[Entry]:
    for entry in entries:
        if entry.seq >= seq:
            yield entry
            if isinstance(entry.event, TurnEnded):
                return


def _changed_usage(usage: Usage, more: int, *, opening: bool) -> Usage:
    if opening:
        fresh = usage.input + more
        return replace(usage, fresh=max(0, fresh), cached=0, cache_write=0, estimated=True)
    field = "cached" if usage.cached else "fresh"
    longer = max(0, getattr(usage, field) + more)
    return replace(usage, **{field: longer}, estimated=True)


def prompt_diff(then: SystemPromptSet, now: SystemPromptSet) -> list[str]:
    """The lines of the system text that differ, part by part."""
    lines: list[str] = []
    for name in dict.fromkeys((*dict(then.parts), *dict(now.parts))):
        before, after = (part_of(prompt, name).splitlines() for prompt in (then, now))
        if before != after:
            names = f"{name}, then", f"{name}, now"
            lines += difflib.unified_diff(before, after, *names, n=0, lineterm="")
    return lines
