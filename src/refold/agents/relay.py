"""Passes questions, answers and progress between a child and its parent while the child runs.

Questions and progress go up, answers go down. Both directions compare the views of the two
sessions and keep no state of their own, so they continue after a restart.
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
from refold.values.live import ChildMoved, as_child_news
from refold.values.messages import ToolCall

_FORWARDED_EVENTS = (
    Judged, Answered, Started, Ended, Stopped, TurnEnded, ChildAsked, ChildAnswered, ChildEnded,
)  # fmt: skip
_COST_EVENTS = (ModelAnswered, Settled, ChildEnded)
_MAX_LABEL_CHARS = 80


class Relay:
    """Between the session of the child of `born` and its parent.

    A child in a working tree of its own gets approvals for one call only: a rule would apply to
    the files of the parent's workspace, which the user was not shown.
    """

    def __init__(self, born: ChildBorn, child: Session, parent: Recorder) -> None:
        self._name, self._agent = born.child, born.teammate or born.agent
        self._child, self._parent = child, parent
        self._apart = bool(born.branch)
        self._wake = anyio.Event()

    async def relay_questions(self) -> None:
        """Pass questions up and answers down, until cancelled."""
        leave = (
            self._child.hub.subscribe(self._wake_for_child),
            self._parent.hub.subscribe(self._wake_for_parent),
        )
        try:
            while True:
                self._wake = anyio.Event()
                await self._pass_questions_up()
                await self._pass_answers_down()
                await self._wake.wait()
        finally:
            for unsubscribe in leave:
                unsubscribe()

    async def relay_news(self) -> None:
        """Publish the child's live news and progress to the parent's watchers, until it is closed."""
        watch = self._child.hub.watch()
        doing, labelled = "begins", _labels()
        self._parent.publish(self._progress(doing))
        async with aclosing(watch.frames()) as frames:
            async for frame in frames:
                if not isinstance(frame.item, Entry):
                    self._parent.publish(as_child_news(self._name, frame.item))
                    continue
                if isinstance(event := frame.item.event, ModelAnswered):
                    doing = labelled(event)
                if isinstance(event, _COST_EVENTS):
                    self._parent.publish(self._progress(doing))

    def _wake_for_child(self, entry: Entry) -> None:
        if isinstance(entry.event, _FORWARDED_EVENTS):
            self._wake.set()

    def _wake_for_parent(self, entry: Entry) -> None:
        if isinstance(entry.event, ChildAnswered):
            self._wake.set()

    async def _pass_questions_up(self) -> None:
        wanted = {asks.id: asks for asks in self._open_questions()}

        def make_events(view: View) -> Sequence[Event]:
            below = f"{self._name}/"
            open_asks = {a.id: a for a in view.children.asks if a.id.startswith(below)}
            events = list[Event]()
            for id_, asks in wanted.items():
                known = open_asks.get(id_)
                if known is not None and known.hash == asks.hash:
                    self._parent.keep_unmasked(asks.call)
                elif _answer(view, asks) is None:
                    # The question shows the whole call.
                    self._parent.keep_unmasked(asks.call)
                    events.append(asks)
            gone = (id_ for id_ in open_asks if id_ not in wanted)
            return (*events, *(ChildAnswered(id_, withdrawn=True) for id_ in gone))

        await self._parent.append_if(make_events, kept=True, author=self._name)

    async def _pass_answers_down(self) -> None:
        view = self._parent.view
        for asks in self._open_questions():
            answer = _answer(view, asks)
            if answer is not None:
                await self._child.inbox.answer(
                    asks.id.removeprefix(f"{self._name}/"),
                    allowed=answer.allowed,
                    reason=answer.reason,
                    answers=answer.answers,
                    hash_=asks.hash,
                )

    def _open_questions(self) -> Iterator[ChildAsked]:
        """The open questions of the child and of its own children, with ids for the parent."""
        view, name = self._child.view, self._name
        if view.turn.stopped is not None:
            return
        for call in view.conversation.waiting_calls:
            yield ChildAsked(
                f"{name}/{call.call.id}",
                name,
                self._agent,
                self._unmasked_call(call.call),
                call.reason,
                call.hash,
                call.once or self._apart,
                call.changes,
                call.outside,
            )
        for asks in view.children.asks:
            yield ChildAsked(
                f"{name}/{asks.id}",
                f"{name}/{asks.child}",
                asks.agent,
                self._unmasked_call(ToolCall(asks.id, asks.call.name, asks.call.arguments)),
                asks.reason,
                asks.hash,
                asks.once or self._apart,
                asks.changes,
                asks.outside,
            )

    def _unmasked_call(self, call: ToolCall) -> ToolCall:
        whole = self._child.unmasked_call(call)
        return ToolCall(f"{self._name}/{call.id}", whole.name, whole.arguments)

    def _progress(self, doing: str) -> ChildMoved:
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
    """The answer to exactly this question, if there is one."""
    for answer in reversed(view.children.answered):
        if answer.id == asks.id and not answer.withdrawn and answer.hash == asks.hash:
            return answer
    return None


def _title(view: View, name: str) -> str:
    child = view.children.child(name)
    born = child.born if child else None
    return (born.title or " ".join(born.task.split())[:60]) if born else ""


def _labels() -> Callable[[ModelAnswered], str]:
    """What the child is doing, in a few words: its newest call, or its text."""
    from refold.tools.builtin import builtin
    from refold.views.call_summary import label

    tools = {tool.name: tool for tool in builtin()}

    def label_answer(answer: ModelAnswered) -> str:
        if not (calls := answer.message.calls):
            return " ".join(answer.message.text.split())[:_MAX_LABEL_CHARS]
        return label(calls[-1], tools.get(calls[-1].name))[:_MAX_LABEL_CHARS]

    return label_answer
