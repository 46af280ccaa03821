"""From news to knowledge: what a session knows after a run of events.

A view is made of sub-folds, one for each concern, and each hears the kinds it
names. `apply` is the only place where an event changes anything; it is pure,
so a view can be thrown away at any time and folded again. What to do about it
all is `engine.decide`'s question.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from refold.journal import (
    about,
    account,
    changes,
    family,
    known,
    mishaps,
    plans,
    recent,
    reminded,
    rights,
    saved,
    talk,
    turn,
)
from refold.journal.about import About
from refold.journal.account import Account
from refold.journal.changes import Changes
from refold.journal.events import Asked, Entry, Imported, Rewound, Said
from refold.journal.family import Family
from refold.journal.known import Known
from refold.journal.mishaps import Mishaps
from refold.journal.plans import Plans
from refold.journal.recent import Recent
from refold.journal.reminded import Reminded
from refold.journal.rights import Rights
from refold.journal.saved import Saved
from refold.journal.talk import Talk
from refold.journal.turn import Turn
from refold.values.log import Log


class Mark(Struct, frozen=True):
    """The talk just before `seq`. Costs one reference, not a copy."""

    seq: int
    talk: Talk


class View(Struct, frozen=True):
    """What the engine may know when it decides. Derived, never authoritative."""

    seq: int = 0
    talk: Talk = field(default_factory=Talk)
    account: Account = Account()
    turn: Turn = Turn()
    rights: Rights = Rights()
    plans: Plans = Plans()
    known: Known = Known()
    about: About = About()
    saved: Saved = Saved()
    changes: Changes = Changes()
    family: Family = Family()
    recent: Recent = Recent()
    reminded: Reminded = Reminded()
    mishaps: Mishaps = Mishaps()
    marks: Log[Mark] = field(default_factory=Log[Mark])

    def marked(self, seq: int) -> Mark | None:
        at = bisect_left(self.marks, seq, key=lambda mark: mark.seq)
        found = self.marks[at] if at < len(self.marks) else None
        return found if found and found.seq == seq else None


_PARTS = {
    "talk": talk, "account": account, "turn": turn,
    "rights": rights, "plans": plans, "known": known, "about": about,
    "saved": saved, "changes": changes, "family": family,
    "recent": recent, "reminded": reminded, "mishaps": mishaps,
}  # fmt: skip
Part: TypeAlias = tuple[str, Callable[[Any, Entry], Any]]
_LISTENERS: dict[type, tuple[Part, ...]] = {
    kind: tuple((n, part.apply) for n, part in _PARTS.items() if kind in part.HEARS)
    for kind in {kind for part in _PARTS.values() for kind in part.HEARS}
}
_MARKED = frozenset({Said, Asked, Rewound})


def apply(view: View, entry: Entry) -> View:
    event = entry.event
    kind = type(event)
    changed: dict[str, Any] = {"seq": entry.seq}
    for name, part in _LISTENERS.get(kind, ()):
        changed[name] = part(getattr(view, name), entry)
    # No mark stands between a call and its result: going back there would do it twice.
    if kind in _MARKED and not view.talk.calls:
        changed["marks"] = view.marks.plus(Mark(entry.seq, view.talk))
    if kind is Imported:  # there is no way back to what somebody else may have made up
        changed["marks"] = Log[Mark]()
    if isinstance(event, Rewound) and (mark := view.marked(event.mark)):
        changed["talk"] = mark.talk
    return replace(view, **changed)


def fold(entries: Iterable[Entry], start: View | None = None) -> View:
    return reduce(apply, entries, start or View())
