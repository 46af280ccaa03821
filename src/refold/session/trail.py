"""How far a session has come that is run again, and what its loop may have seen there.

Between what the loop sees and what it records of that, news from outside may come in: so
the views since it was last at work are kept, and each of them is one it may have seen.
"""

from collections.abc import Callable, Iterator

from refold.engine.decide import Choice, decide
from refold.engine.world import World
from refold.journal.events import (
    Asked,
    Briefed,
    Compacted,
    Entry,
    ModelAnswered,
    ModelFailed,
    Rejected,
    Reserved,
    SessionResumed,
    SessionStarted,
    Settled,
    TakenUp,
    TurnEnded,
    TurnStarted,
)
from refold.journal.fold import View, apply
from refold.session.rehearsal import Blobs, Rehearsal
from refold.views.briefing import differs

# After these the loop looks anew: what it decided before is done.
_DONE = (
    TurnStarted, Asked, TakenUp, Rejected, Compacted, TurnEnded, ModelAnswered, ModelFailed,
    SessionStarted, SessionResumed, Briefed,
)  # fmt: skip


class Trail:
    """`outfit` gives the world of a turn as it would be now."""

    def __init__(self, outfit: Callable[[View], World], blobs: Blobs) -> None:
        self._outfit, self._blobs = outfit, blobs
        self.view, self.since, self._epoch = View(), 0, 0
        self._world: World | None = None  # of the turn under way
        self._seen = list[View]()  # newest last
        self._rights = list[View]()  # of this step, where rights changed
        # A summary was asked for: what was known before, and what that came to.
        self.aside: tuple[View, Settled | None] | None = None
        self.briefings = list[tuple[int, str]]()

    def reach(self, entry: Entry) -> None:
        """Is this the first event of another writer? What was begun before is not theirs."""
        if entry.epoch != self._epoch or isinstance(entry.event, SessionResumed):
            self._epoch, self.since = entry.epoch, self.view.seq
            self._seen, self._rights = [self.view], [self.view]
            self._world = None

    def pass_(self, entry: Entry) -> None:
        """It counts as it stands in the journal."""
        event, before = entry.event, self.view
        self.view = view = apply(before, entry)
        if isinstance(event, _DONE):
            self._seen, self.aside = [], None
        if isinstance(event, Asked) or not self._rights:
            self._rights = [view]
        elif view.rights != before.rights:
            self._rights.append(view)
        self._seen.append(view)
        match event:
            case TurnStarted() | Briefed() | TurnEnded():
                self._world = None
            case Reserved(purpose="summary"):
                self.aside = (before, None)
            case Settled() if self.aside:
                self.aside = (self.aside[0], event)
            case _:
                pass

    def world(self) -> World:
        """The world of the turn under way, as it would be now."""
        if self._world is None:
            self._world = self._outfit(self.view)
            if self.view.turn.seq:
                told, now = self.view.talk.briefed, self._world.briefing()
                known = {sentence for _, sentence in self.briefings}
                new = [each for each in differs(told, now) if each not in known]
                self.briefings += [(self.view.seq, sentence) for sentence in new]
        return self._world

    def choices(self) -> Iterator[tuple[View, Choice | None]]:
        """What would be done now, by what the loop may have seen: the newest first."""
        policies = self.world().policies
        for view in reversed(self._seen):
            yield view, decide(view, policies)

    def doing(self) -> str:
        """What would be done next, in words."""
        return named(next(self.choices(), (None, None))[1])

    def by_rights(self) -> Iterator[View]:
        """The rights that may have held, the newest first."""
        return reversed(self._rights or [self.view])

    def rehearsal(self, view: View | None = None) -> Rehearsal:
        return Rehearsal(view or self.view, self.since, self._blobs)


def named(choice: Choice | None) -> str:
    if choice is None:
        return "nothing"
    return f"{type(choice.action).__name__} by {choice.by}"
