"""A session is run again, event by event, with the code, the policies and rules of now.

What the world and people gave (answers of models, results of tools, words, verdicts) is
taken as it stands in the journal. All that the loop, its policies and the seam made of
that is made again by the same functions, and compared: `decide` and what follows of it,
the judging and the ends of calls, summaries, the beginnings of turns. After each event
the recorded one counts, so that one difference does not bring a hundred others. Nothing
is written, and no model is asked. What counts as the same is `divergence`'s business.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from refold.engine import asking
from refold.engine.decide import (
    ASKED_FOR,
    AskModel,
    Choice,
    EndTurn,
    Reject,
    Shrink,
    TakeUp,
)
from refold.engine.perform import what_is_asked
from refold.engine.summing import shrink, untagged
from refold.engine.world import Mind, World
from refold.errors import ProviderError
from refold.journal.events import (
    Asked,
    Compacted,
    Ended,
    Entry,
    Event,
    Judged,
    ModelAnswered,
    Rejected,
    Settled,
    Started,
    TakenUp,
    TurnEnded,
    TurnStarted,
)
from refold.journal.fold import View
from refold.session.divergence import (
    BY,
    KIND,
    POLICY,
    Divergence,
    Found,
    Replayed,
    between,
)
from refold.session.rehearsal import Blobs, Recalled, said_again, sayings
from refold.session.replaying_calls import Calls, Compared
from refold.session.session import beginning
from refold.session.trail import Trail, named


class Replay:
    """`outfit` gives the world of a turn as it would be now; `blobs` are the session's.

    With `again`, calls that only look are done again, and what they bring is compared.
    """

    def __init__(
        self, outfit: Callable[[View], World], blobs: Blobs, *, again: bool = False
    ) -> None:
        self._trail = Trail(outfit, blobs)
        self._calls = Calls(self._trail, again=again)

    async def run(self, entries: Iterable[Entry]) -> Replayed:
        steps = checked = 0
        found = list[Divergence]()
        for entry in entries:
            self._trail.reach(entry)
            compared = await self._compared(entry)
            checked += len(compared)
            found += [self._told(entry, each) for each in compared if each is not None]
            self._trail.pass_(entry)
            match entry.event:
                case ModelAnswered(partial=False):
                    steps += 1
                case _:
                    pass
        return Replayed(steps, checked, tuple(found), tuple(self._trail.briefings))

    def _told(self, entry: Entry, found: Found) -> Divergence:
        turn, kind = self._trail.view.turn, type(entry.event).__name__
        step = turn.steps + (turn.asking is not None or kind == "Asked")
        return Divergence(entry.seq, turn.seq, max(1, step), kind, *found)

    async def _compared(self, entry: Entry) -> Compared:
        """What was made again of this event, each compared; of what is given, nothing."""
        match entry.event:
            case TurnStarted(why="words") as event:
                now = beginning(self._trail.view)
                return [between(event, now, "nothing")]
            case Asked() | TakenUp() | Rejected() | TurnEnded() as event:
                return [self._decided(entry, event)]
            case ModelAnswered(partial=False) as event:
                return [self._answered(event)]
            case Compacted() as event:
                return [await self._shortened(entry, event)]
            case Judged() | Started() | Ended() as event:
                return await self._calls.compared(entry, event)
            case _:
                return []

    def _decided(
        self, entry: Entry, then: Asked | TakenUp | Rejected | TurnEnded
    ) -> Found | None:
        first: Found | None = None
        for view, choice in self._trail.choices():
            now = _what_follows(choice, view, self._trail.world())
            other = between(then, now, named(choice))
            if other is None and choice is not None and entry.by != POLICY + choice.by:
                other = (BY, entry.by.removeprefix(POLICY), choice.by)
            if other is None:
                return None
            first = first or other
        return first

    def _answered(self, then: ModelAnswered) -> Found | None:
        """The pieces put together again: our ids, which tool is meant, what is no call."""
        view = self._trail.view
        asked = view.turn.asking
        draft = asking.draft_of(view, self._trail.world())
        for delta in said_again(then):
            draft.add(delta)
        now = draft.whole(calls=asked is None or asked.tools)
        if now is None:
            return KIND, "ModelAnswered", "ModelFailed"
        if sayings(then.message) != sayings(now.message):
            return "message", sayings(then.message), sayings(now.message)
        return None if then.stop == now.stop else ("stop", then.stop, now.stop)

    async def _shortened(self, entry: Entry, then: Compacted) -> Found | None:
        """Told shorter again, with the summary that was given then."""
        first: Found | None = None
        for view, action, by in self._shrinks(entry, then):
            other = between(then, await self._shrunk(view, action, then), "nothing")
            if other is None and entry.by != by:
                other = (BY, entry.by, by)
            if other is None:
                return None
            first = first or other
        return first or (KIND, "Compacted", self._trail.doing())

    def _shrinks(self, entry: Entry, then: Compacted) -> Iterator[tuple[View, Shrink, str]]:
        """What may have been wanted, and what was known then."""
        aside = self._trail.aside
        if entry.by == "person":
            start = aside[0] if aside else self._trail.view
            for kind in ("prune", "full") if then.kind == "prune" else ("full",):
                yield start, Shrink(kind, ASKED_FOR, then.focus, wanted=True), "person"
            return
        for view, choice in self._trail.choices():
            late = aside is not None and view.seq > aside[0].seq
            if choice is not None and isinstance(choice.action, Shrink) and not late:
                yield view, choice.action, POLICY + choice.by

    async def _shrunk(self, view: View, action: Shrink, then: Compacted) -> Event | None:
        trail = self._trail
        world, record = trail.world(), trail.rehearsal(view)
        words = _summary(then, trail.aside[1] if trail.aside else None)
        recalled = Recalled(words, lambda: record.go_on_at(trail.view))
        own = world.helper()
        aide = Mind(recalled, own.model, own.window, own.price)
        await shrink(action, replace(world, aide=lambda: aide), record, "")
        return next((e for e in record.made if isinstance(e, Compacted)), None)


def _what_follows(choice: Choice | None, view: View, world: World) -> Event | None:
    """The event that a choice is recorded as; None where it is not that simple."""
    match choice and choice.action:
        case AskModel() as action:
            return what_is_asked(action, view, world)
        case TakeUp(words):
            return TakenUp(words)
        case Reject(notes):
            return Rejected(notes)
        case EndTurn(outcome, reason):
            return TurnEnded(outcome, reason)
        case _:
            return None


def _summary(then: Compacted, settled: Settled | None) -> str | ProviderError:
    """What the model said when it was asked for one, as far as the journal tells."""
    if settled is not None and settled.failed:
        return ProviderError(settled.failed)
    if then.kind != "trim":
        return untagged(then.summary)
    too_long = then.reason.endswith("longer than what it stands for")
    return "x" * (then.before + 8 * len(then.summary) + 1_000_000) if too_long else " "
