"""Passes questions, answers and progress between a child and its parent while the child
runs.

Questions and progress are passed to the parent, answers to the child. Both directions only
compare the views of the two sessions, without a state of their own, so they continue after a
restart.
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
_MAX_TITLE_CHARS = 60


class Relay:
    """Connects the session of the child that `born` started with the session of its parent.

    If the child has a working tree of its own, the user can answer its questions for one call
    only, and not with a rule. The rule would be granted to the parent, and would allow calls on
    the files of the parent's workspace, too, about which the user was not asked.
    """

    def __init__(self, born: ChildBorn, child: Session, parent: Recorder) -> None:
        self._name = born.child
        self._agent = born.teammate or born.agent
        self._child = child
        self._parent = parent
        self._has_own_tree = bool(born.branch)
        self._wake = anyio.Event()

    async def relay_questions(self) -> None:
        """Pass questions to the parent and answers to the child, until cancelled."""
        unsubscribers = (
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
            for unsubscribe in unsubscribers:
                unsubscribe()

    async def relay_news(self) -> None:
        """Publish the child's live news and progress to the parent's watchers, until the
        child's session is closed.
        """
        watch = self._child.hub.watch()
        doing = "begins"
        describe_activity = _labels()
        self._parent.publish(self._progress(doing))
        async with aclosing(watch.frames()) as frames:
            async for frame in frames:
                if not isinstance(frame.item, Entry):
                    self._parent.publish(as_child_news(self._name, frame.item))
                    continue
                event = frame.item.event
                if isinstance(event, ModelAnswered):
                    doing = describe_activity(event)
                if isinstance(event, _COST_EVENTS):
                    self._parent.publish(self._progress(doing))

    def _wake_for_child(self, entry: Entry) -> None:
        if isinstance(entry.event, _FORWARDED_EVENTS):
            self._wake.set()

    def _wake_for_parent(self, entry: Entry) -> None:
        if isinstance(entry.event, ChildAnswered):
            self._wake.set()

    async def _pass_questions_up(self) -> None:
        """Record the child's new questions in the parent's journal.

        Questions that are no longer open in the child are withdrawn.
        """
        child_asks = {ask.id: ask for ask in self._open_questions()}

        def make_events(view: View) -> Sequence[Event]:
            """Return the new and changed questions, and a withdrawal of each closed question."""
            prefix = f"{self._name}/"
            recorded = {
                ask.id: ask for ask in view.children.asks if ask.id.startswith(prefix)
            }
            events = list[Event]()
            for id_, ask in child_asks.items():
                is_recorded = id_ in recorded and recorded[id_].hash == ask.hash
                is_new = not is_recorded and _answer(view, ask) is None
                if is_new:
                    events.append(ask)
                if is_recorded or is_new:  # the user must see the call with its secrets
                    self._parent.keep_unmasked(ask.call)
            for id_ in recorded:
                if id_ not in child_asks:
                    events.append(ChildAnswered(id_, withdrawn=True))
            return events

        await self._parent.append_if(make_events, kept=True, author=self._name)

    async def _pass_answers_down(self) -> None:
        """Copy the user's answers from the parent's journal to the child's journal."""
        view = self._parent.view
        for ask in self._open_questions():
            answer = _answer(view, ask)
            if answer is not None:
                await self._child.inbox.answer(
                    ask.id.removeprefix(f"{self._name}/"),
                    allowed=answer.allowed,
                    reason=answer.reason,
                    answers=answer.answers,
                    hash_=ask.hash,
                )

    def _open_questions(self) -> Iterator[ChildAsked]:
        """Yield the open questions of the child and of children below it, with ids that are
        unique in the parent.
        """
        view, name = self._child.view, self._name
        if view.turn.stopped is not None:
            return
        for call in view.conversation.waiting_calls:
            yield ChildAsked(
                id=f"{name}/{call.call.id}",
                child=name,
                agent=self._agent,
                call=self._unmasked_call(call.call),
                reason=call.reason,
                hash=call.hash,
                once=call.once or self._has_own_tree,
                changes=call.changes,
                outside=call.outside,
            )
        for ask in view.children.asks:  # of children below it
            call_below = ToolCall(ask.id, ask.call.name, ask.call.arguments)
            yield ChildAsked(
                id=f"{name}/{ask.id}",
                child=f"{name}/{ask.child}",
                agent=ask.agent,
                call=self._unmasked_call(call_below),
                reason=ask.reason,
                hash=ask.hash,
                once=ask.once or self._has_own_tree,
                changes=ask.changes,
                outside=ask.outside,
            )

    def _unmasked_call(self, call: ToolCall) -> ToolCall:
        whole = self._child.unmasked_call(call)
        return ToolCall(f"{self._name}/{call.id}", whole.name, whole.arguments)

    def _progress(self, doing: str) -> ChildMoved:
        """Return the news for the parent: what the child does, and its usage so far."""
        view = self._child.view
        own = view.account.spent
        with_children = own + view.account.children_spent
        leaves = view.children.leaves  # model calls that code of the child makes
        return ChildMoved(
            node=self._name,
            agent=self._agent,
            title=_title(self._parent.view, self._name),
            steps=own.answers,
            tokens=with_children.usage.input + with_children.usage.output,
            cost=with_children.cost,
            label=f"{doing} · {leaves:,} model calls" if leaves else doing,
        )


def _answer(view: View, ask: ChildAsked) -> ChildAnswered | None:
    """Return the user's answer to exactly this question; None if there is none yet."""
    for answer in reversed(view.children.answered):
        if answer.id == ask.id and not answer.withdrawn and answer.hash == ask.hash:
            return answer
    return None


def _title(view: View, name: str) -> str:
    """Return the title of a child; if it has none, the beginning of its task."""
    child = view.children.child(name)
    if child is None:
        return ""
    return child.born.title or " ".join(child.born.task.split())[:_MAX_TITLE_CHARS]


def _labels() -> Callable[[ModelAnswered], str]:
    """Return a function that describes what a child does, from a response of its model."""
    from refold.tools.builtin import builtin
    from refold.views.call_summary import label

    tools = {tool.name: tool for tool in builtin()}

    def label_answer(answer: ModelAnswered) -> str:
        """Return the label of the newest call. Without calls, return the beginning of the
        text.
        """
        if not answer.message.calls:
            return " ".join(answer.message.text.split())[:_MAX_LABEL_CHARS]
        *_, newest_call = answer.message.calls
        return label(newest_call, tools.get(newest_call.name))[:_MAX_LABEL_CHARS]

    return label_answer
