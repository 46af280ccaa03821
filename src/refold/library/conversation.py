"""One conversation, as a program has it: say, watch, answer for the person, go on.

Made by `library.Agent`; it owns no journal and no turn of its own, and puts what the
session inside does into a few values that stay readable.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import anyio
from msgspec import Struct

from refold.agents.choosing import choose
from refold.agents.registry import Registry
from refold.errors import BadInput, first
from refold.journal.fold import View
from refold.journal.frame import Frame
from refold.journal.plans import Plan
from refold.library.answering import Approve, Question, answer_all, denied, questions
from refold.session.session import Session as Engine
from refold.tools.pictures import picture_file
from refold.values.budget import Budget
from refold.values.effort import Effort
from refold.values.rights import Mode
from refold.values.todos import Todo
from refold.values.usage import Usage
from refold.views.result import result


class Result(Struct, frozen=True):
    """What a turn came to.

    `outcome` is one of answered, final, plan_ready, interrupted, cancelled, step_limit,
    budget, stuck, denied, failed. `step_limit` and `budget` are pauses:
    `Session.continue_` goes on; after `plan_ready` the plan waits for `Session.approve_plan` or `reject_plan`. `files`
    maps each changed path to "created", "changed" or "deleted"; `cost` is None where
    the price is unknown. `data` is the answer as data, where the agent has a schema
    and the answer matches it. `warnings` are what the journal says against it: the
    last command failed, or a file was not written.
    """

    outcome: str
    reason: str
    text: str
    session_id: str
    usage: Usage
    cost: float | None
    denials: tuple[Question, ...]
    files: Mapping[str, str]
    data: Any = None
    warnings: tuple[str, ...] = ()


class Session:
    """One conversation. Made by `Agent.session`; one turn runs at a time."""

    def __init__(
        self,
        id_: str,
        engine: Engine,
        approve: Approve | None,
        full: Callable[[str], str],
        agents: Registry,
    ) -> None:
        self.id, self._engine, self._approve, self._full = id_, engine, approve, full
        self._agents = agents
        self._busy = False

    @property
    def view(self) -> View:
        """What the session knows: talk, account, turn, rights. A frozen value."""
        return self._engine.view

    async def run(self, words: str, pictures: Sequence[str | Path] = ()) -> Result:
        """Say `words` and go on until the turn has ended. Raises `BadInput` if one runs.

        `pictures` are files for the model to see.
        """
        with self._alone():
            return await self._turn(words, pictures)

    async def continue_(self) -> Result:
        """Go on where the last turn ended, or finish one that a crash cut off."""
        with self._alone():
            return await self._to_the_end(self._engine.continue_)

    @asynccontextmanager
    async def stream(self, words: str) -> AsyncGenerator[AsyncIterator[Frame], None]:
        """Like `run`, and give every event and piece of text as it comes.

            async with session.stream("Fix the test.") as frames:
                async for frame in frames:
                    print(frame.item)
            print(session.result.text)

        The frames end with the turn. Leaving earlier stops it.
        """
        watch = self._engine.hub.watch()

        async def turn() -> None:
            try:
                await self._turn(words)
            finally:
                watch.close()

        with self._alone(), _one_error():
            async with anyio.create_task_group() as group:
                group.start_soon(turn)
                try:
                    async with aclosing(watch.frames()) as frames:
                        yield frames
                finally:
                    await self._engine.inbox.cancel("nobody watches it any more")

    @property
    def result(self) -> Result:
        """What the last turn came to."""
        return _result(self.view, self.id)

    async def steer(self, words: str) -> None:
        """Words for the running turn: the model hears them at its next step."""
        await self._engine.inbox.say(words)

    async def queue(self, words: str) -> None:
        """Words for after the running turn: they begin the next one."""
        await self._engine.inbox.say(words, when="next")

    async def compact(self, focus: str = "", *, prune: bool = False) -> bool:
        """Tell the talk shorter, now or before the next step. False if nothing was said.

        `focus` says what the summary must not lose; `prune` only leaves out old results.
        """
        return await self._engine.compact("prune" if prune else "full", focus)

    @property
    def todos(self) -> tuple[Todo, ...]:
        """The checklist of the session."""
        return self.view.talk.todos

    async def interrupt(self, instead: str = "") -> bool:
        """Stop the turn at once. `instead` is what the model hears next."""
        return await self._engine.inbox.interrupt(instead=instead)

    async def answer(
        self,
        call_id: str,
        allowed: bool,
        reason: str = "",
        *,
        answers: Sequence[str] = (),
        hash_: str = "",
    ) -> bool:
        """Decide on a call that waits. False if somebody was first, or it is another by now.

        `answers` are to `Question.asks`; `hash_` is `Question.hash`.
        """
        return await self._engine.inbox.answer(
            call_id, allowed=allowed, reason=reason, answers=answers, hash_=hash_
        )

    @property
    def plan(self) -> Plan | None:
        """The plan that waits for a person, after an outcome `plan_ready`."""
        return self.view.plans.waiting

    async def approve_plan(self, text: str = "") -> Result:
        """Yes to the plan, or to `text` as it should be instead; it is carried out."""
        return await self._judged(lambda: self._engine.inbox.approve_plan(text=text))

    async def reject_plan(self, feedback: str = "") -> Result:
        """No. With `feedback` the model revises the plan and shows it again."""
        return await self._judged(lambda: self._engine.inbox.reject_plan(feedback=feedback))

    async def set_mode(self, mode: Mode) -> None:
        """How much runs unasked: default, accept-edits, plan, rules-only or bypass."""
        await self._engine.inbox.set_mode(mode)

    async def set_budget(self, budget: Budget) -> None:
        """What a turn may use up, the one under way included."""
        await self._engine.inbox.set_budget(budget)

    async def set_agent(self, agent: str) -> None:
        """Who works in the turns to come, by name. Not while one runs."""
        self._between_turns("agent")
        await choose(self._engine.inbox, self._agents, agent)

    async def set_model(self, model: str) -> None:
        """The model of the turns to come, as provider/model. Not while one runs."""
        self._between_turns("model")
        await self._engine.inbox.choose_model(self._full(model))

    async def set_effort(self, effort: Effort) -> None:
        """How hard the model thinks in the turns to come: low, medium, high or max."""
        self._between_turns("effort")
        await self._engine.inbox.choose_effort(effort)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The calls that wait for `answer`."""
        return questions(self._engine)

    async def _judged(self, judge: Callable[[], Awaitable[bool]]) -> Result:
        with self._alone():
            if not await judge():
                raise BadInput("there is no plan that waits to be judged")
            return await self._to_the_end(self._engine.go)

    def _between_turns(self, what: str) -> None:
        if self._busy or self._engine.running:
            raise BadInput(
                f"the {what} cannot be changed while a turn runs: wait, or stop it"
            )

    @contextmanager
    def _alone(self) -> Generator[None]:
        if self._busy or self._engine.running:
            raise BadInput("a turn of this session is running already: wait, or stop it")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    async def _turn(self, words: str, pictures: Sequence[str | Path] = ()) -> Result:
        shown = [picture_file(Path(name), str(name)) for name in pictures]
        await self._engine.inbox.say(words, pictures=shown)
        return await self._to_the_end(self._engine.go)

    async def _to_the_end(self, go: Callable[[], Awaitable[View]]) -> Result:
        with _one_error():
            async with anyio.create_task_group() as group:
                if self._approve is not None:
                    group.start_soon(answer_all, self._engine, self._approve)
                await go()
                while self.questions and self._approve is not None:
                    await self._engine.record.news(after=self.view.seq)
                    await self._engine.go()
                group.cancel_scope.cancel()
        return self.result


@contextmanager
def _one_error() -> Generator[None]:
    """Let the error out that a task failed with, not the group that wraps it."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first(group) from group


def _result(view: View, id_: str) -> Result:
    turn = view.turn
    document = result(view, id_, 0.0)
    files = cast("list[dict[str, str]]", document["files"])
    return Result(
        outcome=str(document["outcome"]),
        reason=str(document["reason"]),
        text=turn.answer,
        session_id=id_,
        usage=turn.spent.usage,
        cost=turn.spent.cost,
        denials=tuple(denied(d.call, d.reason) for d in turn.denials),
        files={each["path"]: each["kind"] for each in files},
        data=document.get("structured"),
        warnings=tuple(cast("list[str]", document["warnings"])),
    )
