"""The children of a session, and what they wait for. Never rewinds: they were born.

How a child is opened, fed and stopped is the business of `agents.children`; what it did
stands in a journal of its own.
"""

import re
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildGranted,
    ChildStopped,
    Entry,
    Forked,
    Imported,
    Reserved,
)
from refold.values.usage import NO_LIMIT, Budget

HEARS = (
    ChildBorn, ChildGranted, ChildAsked, ChildAnswered, ChildStopped, ChildEnded, Reserved,
    Forked, Imported,
)  # fmt: skip
Status: TypeAlias = Literal["runs", "done", "partial", "failed"]


_NAME = "child-"
CHILD = re.compile(r"child-[1-9][0-9]{0,8}")  # the name of any


class Child(Struct, frozen=True):
    """`born` is as it was wanted, at `seq`; `end` what it came to."""

    born: ChildBorn
    seq: int
    granted: Budget = NO_LIMIT  # all in all
    stopped: str = ""  # why it is to end
    end: ChildEnded | None = None
    foreign: bool = False  # of a session that this one was made of: read, never resumed

    @property
    def name(self) -> str:
        return self.born.child

    @property
    def runs(self) -> bool:
        return self.end is None and not self.foreign

    @property
    def status(self) -> Status:
        return self.end.status if self.end else "runs"


class Children(Struct, frozen=True):
    children: tuple[Child, ...] = ()
    asks: tuple[ChildAsked, ...] = ()  # that wait for the person
    answered: tuple[ChildAnswered, ...] = ()  # the newest ones, for whoever relays them
    leaves: int = 0  # models asked by code; the next one's number is one more

    def child(self, name: str) -> Child | None:
        at = self.place(name)
        return None if at is None else self.children[at]

    def place(self, name: str) -> int | None:
        """Where among the children this one stands: they are numbered as they are born."""
        number = name.removeprefix(_NAME)
        at = int(number) - 1 if number.isascii() and number.isdecimal() else -1
        if 0 <= at < len(self.children) and self.children[at].name == name:
            return at
        return next((n for n, c in enumerate(self.children) if c.name == name), None)

    def of_call(self, call_id: str, key: str = "", n: int = 0) -> Child | None:
        """The child that was born for this call, if it was."""
        wanted = (call_id, key, n)
        for each in self.children:
            born = each.born
            if (born.call_id, born.key, born.n) == wanted and not each.foreign:
                return each
        return None

    @property
    def running(self) -> tuple[Child, ...]:
        return tuple(each for each in self.children if each.runs)

    @property
    def next_name(self) -> str:
        return f"{_NAME}{len(self.children) + 1}"


_ANSWERS_KEPT = 64


def apply(family: Children, entry: Entry) -> Children:
    match entry.event:
        case ChildBorn() as born:
            child = Child(born, entry.seq, born.grant)
            return replace(family, children=(*family.children, child))
        case ChildGranted(name, budget):
            return _with(family, name, granted=budget)
        case ChildStopped(name, reason):
            return _with(family, name, stopped=reason)
        case ChildEnded(name) as end:
            below = f"{name}/"
            asks = tuple(a for a in family.asks if not f"{a.child}/".startswith(below))
            return replace(_with(family, name, end=end), asks=asks)
        case ChildAsked() | ChildAnswered():
            return _asked(family, entry.event)
        case Reserved(leaf=leaf) if leaf:
            return replace(family, leaves=leaf)
        case Forked() | Imported():
            children = tuple(replace(each, foreign=True) for each in family.children)
            return replace(family, children=children, asks=())
        case _:
            return family


def _asked(family: Children, event: ChildAsked | ChildAnswered) -> Children:
    rest = tuple(each for each in family.asks if each.id != event.id)
    if isinstance(event, ChildAsked):
        return replace(family, asks=(*rest, event))
    answered = (*family.answered[1 - _ANSWERS_KEPT :], event)
    return replace(family, asks=rest, answered=answered)


def _with(family: Children, name: str, **changes: object) -> Children:
    at, all_ = family.place(name), family.children
    if at is None:
        return family
    return replace(
        family, children=(*all_[:at], replace(all_[at], **changes), *all_[at + 1 :])
    )
