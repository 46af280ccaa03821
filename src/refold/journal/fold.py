"""From news to knowledge: what a session knows after a run of events.

A view is made of sub-folds, one for each concern, and each hears the kinds that
its `HEARS` names. One that is made anew with each turn says with `OUTLIVES` which
of them it must hear of the turns before; the others are not told to it then.
`_hear` is the only place where an event changes anything. All of it is pure, so a
view can be thrown away at any time and folded again. What to do about it all is
`engine.decide`'s question.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict

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
from refold.journal.events import Asked, Entry, Imported, Rewound, Said, TurnStarted
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
        return _marked(self.marks, seq)


_PARTS = {
    "talk": talk, "account": account, "turn": turn,
    "rights": rights, "plans": plans, "known": known, "about": about,
    "saved": saved, "changes": changes, "family": family,
    "recent": recent, "reminded": reminded, "mishaps": mishaps,
}  # fmt: skip
Part: TypeAlias = tuple[str, Callable[[Any, Entry], Any]]
Listeners: TypeAlias = Mapping[type, tuple[Part, ...]]
Heard: TypeAlias = Callable[[ModuleType], tuple[type, ...]]


def _listeners(heard: Heard) -> Listeners:
    kinds = {kind for part in _PARTS.values() for kind in heard(part)}
    return {
        kind: tuple((n, part.apply) for n, part in _PARTS.items() if kind in heard(part))
        for kind in kinds
    }


_LISTENERS = _listeners(lambda part: part.HEARS)
_BEFORE = _listeners(lambda part: getattr(part, "OUTLIVES", part.HEARS))
_MARKED = frozenset({Said, Asked, Rewound, Imported})


def apply(view: View, entry: Entry) -> View:
    parts = asdict(view)
    _hear(parts, entry, _LISTENERS)
    return View(**parts)


def fold(entries: Iterable[Entry], start: View | None = None) -> View:
    """What `apply` gives for one after the other, without the views in between."""
    parts, every = asdict(start or View()), tuple(entries)
    places = range(len(every) - 1, -1, -1)
    newest = next((n for n in places if isinstance(every[n].event, TurnStarted)), 0)
    for entry in every[:newest]:
        _hear(parts, entry, _BEFORE)
    for entry in every[newest:]:
        _hear(parts, entry, _LISTENERS)
    return View(**parts)


def _hear(parts: dict[str, Any], entry: Entry, listeners: Listeners) -> None:
    """Changes `parts`, which are those of a view, by their names."""
    kind = type(entry.event)
    if kind in _MARKED:
        _mark(parts, entry)
    for name, part in listeners.get(kind, ()):
        parts[name] = part(parts[name], entry)
    parts["seq"] = entry.seq


def _mark(parts: dict[str, Any], entry: Entry) -> None:
    now: Talk = parts["talk"]
    marks: Log[Mark] = parts["marks"]
    # No mark stands between a call and its result: going back there would do it twice.
    if not now.calls:
        parts["marks"] = marks.plus(Mark(entry.seq, now))
    match entry.event:
        case Rewound(seq) if mark := _marked(marks, seq):
            parts["talk"] = mark.talk
        case Imported():  # there is no way back to what somebody else may have made up
            parts["marks"] = Log[Mark]()
        case _:
            pass


def _marked(marks: Log[Mark], seq: int) -> Mark | None:
    at = bisect_left(marks, seq, key=lambda mark: mark.seq)
    found = marks[at] if at < len(marks) else None
    return found if found and found.seq == seq else None
