"""The subagents of a session and their open questions. A rewind does not change them.

`agents.children` starts and stops subagents; each has its own journal.
"""

from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from refold.journal.events.kinds import (
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildGranted,
    ChildStopped,
    Ended,
    Entry,
    Forked,
    Imported,
    MailSent,
    Reserved,
    TeammateIdled,
)
from refold.values.control import TasksChanged
from refold.values.growing import Log
from refold.values.usage import NO_LIMIT, Budget

EVENT_KINDS = (
    ChildBorn, ChildGranted, ChildAsked, ChildAnswered, ChildStopped, ChildEnded, Reserved,
    Forked, Imported, MailSent, TeammateIdled, Ended,
)  # fmt: skip
Status: TypeAlias = Literal["runs", "done", "partial", "failed"]


_NAME_PREFIX = "child-"
CHILD_PATTERN = r"child-[1-9][0-9]{0,8}"


class Child(Struct, frozen=True):
    """A subagent. `born`, at `seq`, is its start; `end` is None while it runs."""

    born: ChildBorn
    seq: int
    granted: Budget = NO_LIMIT  # its total budget
    stopped: str = ""  # why it was asked to stop
    end: ChildEnded | None = None
    foreign: bool = False  # from before a fork or an import: it is read, but never resumed
    at: float = 0.0  # the journal's time of its start
    idle: bool = False  # a teammate that waits for mail or a free task

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
    asks: tuple[ChildAsked, ...] = ()  # waiting for the user
    answered: tuple[ChildAnswered, ...] = ()  # the newest ones, to be relayed
    mail: Log[MailSent] = field(default_factory=Log[MailSent])  # of the team, in order
    leaves: int = 0  # the number of the last model call made by code

    def child(self, name: str) -> Child | None:
        index = self.place(name)
        return None if index is None else self.children[index]

    def place(self, name: str) -> int | None:
        """Return the index of the subagent of this name; None if there is none.

        Names count subagents in the order in which they start, so the number in the name is
        tried first.
        """
        number = name.removeprefix(_NAME_PREFIX)
        likely_index = int(number) - 1 if number.isascii() and number.isdecimal() else -1
        is_in_range = 0 <= likely_index < len(self.children)
        if is_in_range and self.children[likely_index].name == name:
            return likely_index
        indexes = (n for n, child in enumerate(self.children) if child.name == name)
        return next(indexes, None)

    def of_call(self, call_id: str, key: str = "", n: int = 0) -> Child | None:
        """Return the subagent that this call started; None if it started none."""
        wanted = (call_id, key, n)
        for child in self.children:
            born = child.born
            if (born.call_id, born.key, born.n) == wanted and not child.foreign:
                return child
        return None

    @property
    def running(self) -> tuple[Child, ...]:
        return tuple(child for child in self.children if child.runs)

    @property
    def team(self) -> tuple[Child, ...]:
        """Return the teammates that run and have not been asked to stop."""
        return tuple(c for c in self.running if c.born.teammate and not c.stopped)

    @property
    def next_name(self) -> str:
        return f"{_NAME_PREFIX}{len(self.children) + 1}"


_MAX_ANSWERS = 64


def apply(children: Children, entry: Entry) -> Children:
    """Return the subagents after this entry. An event of another kind changes nothing."""
    match entry.event:
        case ChildBorn() as born:
            child = Child(born, entry.seq, born.grant, at=entry.at)
            return replace(children, children=(*children.children, child))
        case ChildGranted() | ChildStopped() | TeammateIdled():
            return _with_change(children, entry.event)
        case ChildEnded(name) as end:
            # Its questions end with it, and those of the subagents below it.
            prefix = f"{name}/"
            asks = tuple(a for a in children.asks if not f"{a.child}/".startswith(prefix))
            return replace(_change_child(children, name, end=end), asks=asks)
        case ChildAsked() | ChildAnswered():
            return _with_question(children, entry.event)
        case MailSent() | Ended():
            return _with_mail(children, entry.event)
        case Reserved(leaf=leaf) if leaf:
            return replace(children, leaves=leaf)
        case Forked() | Imported():
            foreign = tuple(replace(child, foreign=True) for child in children.children)
            return replace(children, children=foreign, asks=())
        case _:
            return children


def _with_question(children: Children, event: ChildAsked | ChildAnswered) -> Children:
    """Return the state after a subagent's question, or after its answer."""
    others = tuple(question for question in children.asks if question.id != event.id)
    if isinstance(event, ChildAsked):
        return replace(children, asks=(*others, event))
    answered = (*children.answered, event)
    return replace(children, asks=others, answered=answered[-_MAX_ANSWERS:])


def _with_change(
    children: Children, event: ChildGranted | ChildStopped | TeammateIdled
) -> Children:
    """Return the state with a larger budget, a stop or an idle teammate."""
    match event:
        case ChildGranted(name, budget):
            return _change_child(children, name, granted=budget)
        case ChildStopped(name, reason):
            return _change_child(children, name, stopped=reason)
        case TeammateIdled(name, idle):
            return _change_child(children, name, idle=idle)


def _with_mail(children: Children, event: MailSent | Ended) -> Children:
    """Return the state after mail, or after a change of tasks, which may wake teammates."""
    match event:
        case MailSent(to=to):
            recipient = next((c for c in children.team if c.born.teammate == to), None)
            children = replace(children, mail=children.mail.plus(event))
            if recipient is None:
                return children
            return _change_child(children, recipient.name, idle=False)
        case Ended(control=TasksChanged()):  # a task may have become free
            for teammate in children.team:
                children = _change_child(children, teammate.name, idle=False)
            return children
        case _:
            return children


def _change_child(children: Children, name: str, **changes: object) -> Children:
    """Return the state with these fields of a subagent; the same if there is none."""
    index = children.place(name)
    if index is None:
        return children
    earlier, later = children.children[:index], children.children[index + 1 :]
    changed = replace(children.children[index], **changes)
    return replace(children, children=(*earlier, changed, *later))
