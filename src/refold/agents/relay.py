"""What passes between a child and its parent while the child works.

Up: what it asks the person, and how far it is. Down: what the person says to that. Each
way is a look at both views; nothing is remembered here, so after a restart it goes on by
itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing

import anyio

from refold.journal.events.child_events import (
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
)
from refold.journal.events.kinds import (
    Answered,
    Ended,
    Entry,
    Event,
    Judged,
    ModelAnswered,
    Settled,
    Started,
    Stopped,
    TurnEnded,
)
from refold.journal.state.fold import View
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.values.live import ChildMoved, from_child
from refold.values.messages import ToolCall

_BELOW = (
    Judged, Answered, Started, Ended, Stopped, TurnEnded, ChildAsked, ChildAnswered, ChildEnded,
)  # fmt: skip
_COSTS = (ModelAnswered, Settled, ChildEnded)
_LABEL = 80  # characters


class Relay:
    """Between the session of the child of `born` and its parent.

    What a child in a working tree of its own asks is offered once only: a rule that is
    granted would speak of the files here, and nobody was shown those.
    """

    def __init__(self, born: ChildBorn, child: Session, parent: Recorder) -> None:
        self._name, self._agent = born.child, born.agent
        self._child, self._parent = child, parent
        self._apart = bool(born.branch)
        self._wake = anyio.Event()

    async def questions(self) -> None:
        """Carry questions up and answers down, until this is cancelled."""
        leave = (self._child.hub.heed(self._below), self._parent.hub.heed(self._above))
        try:
            while True:
                self._wake = anyio.Event()
                await self._up()
                await self._down()
                await self._wake.wait()
        finally:
            for each in leave:
                each()

    async def news(self) -> None:
        """Tell the parent's watchers what the child says and does, until it is closed."""
        watch = self._child.hub.watch()
        doing, labelled = "begins", _labels()
        self._parent.tell(self._moved(doing))
        async with aclosing(watch.frames()) as frames:
            async for frame in frames:
                if not isinstance(frame.item, Entry):
                    self._parent.tell(from_child(self._name, frame.item))
                    continue
                if isinstance(event := frame.item.event, ModelAnswered):
                    doing = labelled(event)
                if isinstance(event, _COSTS):
                    self._parent.tell(self._moved(doing))

    def _below(self, entry: Entry) -> None:
        if isinstance(entry.event, _BELOW):
            self._wake.set()

    def _above(self, entry: Entry) -> None:
        if isinstance(entry.event, ChildAnswered):
            self._wake.set()

    async def _up(self) -> None:
        wanted = {asks.id: asks for asks in self._asked()}

        def news(view: View) -> Sequence[Event]:
            below = f"{self._name}/"
            here = {a.id: a for a in view.children.asks if a.id.startswith(below)}
            found = list[Event]()
            for id_, asks in wanted.items():
                known = here.get(id_)
                if known is not None and known.hash == asks.hash:
                    self._parent.lend(asks.call)
                elif _answer(view, asks) is None:
                    self._parent.lend(asks.call)  # whoever is asked sees what will be done
                    found.append(asks)
            gone = (id_ for id_ in here if id_ not in wanted)
            return (*found, *(ChildAnswered(id_, withdrawn=True) for id_ in gone))

        await self._parent.append_if(news, kept=True, by=self._name)

    async def _down(self) -> None:
        view = self._parent.view
        for asks in self._asked():
            said = _answer(view, asks)
            if said is not None:
                await self._child.inbox.answer(
                    asks.id.removeprefix(f"{self._name}/"),
                    allowed=said.allowed,
                    reason=said.reason,
                    answers=said.answers,
                    hash_=asks.hash,
                )

    def _asked(self) -> Iterator[ChildAsked]:
        """What the child and those below it want to know, as the parent says it."""
        view, name = self._child.view, self._name
        if view.turn.stopped is not None:
            return
        for call in view.conversation.asked:
            yield ChildAsked(
                f"{name}/{call.call.id}",
                name,
                self._agent,
                self._as_made(call.call),
                call.reason,
                call.hash,
                call.once or self._apart,
            )
        for asks in view.children.asks:
            yield ChildAsked(
                f"{name}/{asks.id}",
                f"{name}/{asks.child}",
                asks.agent,
                self._as_made(ToolCall(asks.id, asks.call.name, asks.call.arguments)),
                asks.reason,
                asks.hash,
                asks.once or self._apart,
            )

    def _as_made(self, call: ToolCall) -> ToolCall:
        made = self._child.as_made(call)
        return ToolCall(f"{self._name}/{call.id}", made.name, made.arguments)

    def _moved(self, doing: str) -> ChildMoved:
        view = self._child.view
        own, below = view.account.spent, view.account.children_spent
        spent = own + below
        title = _title(self._parent.view, self._name)
        tokens = spent.usage.input + spent.usage.output
        if leaves := view.children.leaves:
            doing = f"{doing} · {leaves:,} model calls"
        return ChildMoved(
            self._name, self._agent, title, own.answers, tokens, spent.cost, doing
        )


def _answer(view: View, asks: ChildAsked) -> ChildAnswered | None:
    """What was said to exactly this, if it was."""
    for said in reversed(view.children.answered):
        if said.id == asks.id and not said.withdrawn and said.hash == asks.hash:
            return said
    return None


def _title(view: View, name: str) -> str:
    found = view.children.child(name)
    born = found.born if found else None
    return (born.title or " ".join(born.task.split())[:60]) if born else ""


def _labels() -> Callable[[ModelAnswered], str]:
    """What a child does now, in a few words: its newest call, or what it says."""
    from refold.tools.builtin import builtin
    from refold.views.call_summary import label

    tools = {tool.spec.name: tool for tool in builtin()}

    def labelled(answer: ModelAnswered) -> str:
        if not (calls := answer.message.calls):
            return " ".join(answer.message.text.split())[:_LABEL]
        return label(calls[-1], tools.get(calls[-1].name))[:_LABEL]

    return labelled
