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

from refold.errors import BadInput, first
from refold.journal.fold import View
from refold.journal.frame import Frame
from refold.journal.plans import Plan
from refold.session.requests import Permission, PlanToJudge, Questions, requests
from refold.session.session import Session as Engine
from refold.tools.pictures import picture_file
from refold.values.asked import Asking
from refold.values.effort import Effort
from refold.values.messages import ToolCall
from refold.values.rights import Mode
from refold.values.usage import Usage
from refold.views.result import arguments, result


class Question(Struct, frozen=True):
    """A call that waits for a person. `reason` says why it is asked about.

    With `asks` the model wants to know something: an answer to each is the reply. With
    `once` the rules let nobody allow more than this one call.
    """

    call_id: str
    tool: str
    arguments: Any
    reason: str
    asks: tuple[Asking, ...] = ()
    once: bool = False
    hash: str = ""  # of all that the question shows; an answer to it is to nothing else


class Result(Struct, frozen=True):
    """What a turn came to.

    `outcome` is one of answered, final, plan_ready, interrupted, cancelled, step_limit,
    stuck, denied, failed. A `step_limit` is a pause: `Session.continue_` goes on; after
    `plan_ready` the plan waits for `Session.approve_plan` or `reject_plan`. `files`
    maps each changed path to "created", "changed" or "deleted"; `cost` is None where
    the price is unknown. `data` is the answer as data, where the agent has a schema
    and the answer matches it.
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


Approve = Callable[[Question], Awaitable[bool | str | Sequence[str]]]


class Session:
    """One conversation. Made by `Agent.session`; one turn runs at a time."""

    def __init__(
        self,
        id_: str,
        engine: Engine,
        approve: Approve | None,
        full: Callable[[str], str],
    ) -> None:
        self.id, self._engine, self._approve, self._full = id_, engine, approve, full
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
        waiting = requests(self.view)
        return tuple(self._asked(r) for r in waiting if not isinstance(r, PlanToJudge))

    def _asked(self, request: Permission | Questions) -> Question:
        call = request.call
        return Question(
            request.id,
            call.call.name,
            arguments(self._engine.as_made(call.call)),
            call.reason,
            tuple(request.questions) if isinstance(request, Questions) else (),
            call.once,
            call.hash,
        )

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
                    group.start_soon(self._answer_questions, self._approve)
                await go()
                while self.questions and self._approve is not None:
                    await self._engine.record.news(after=self.view.seq)
                    await self._engine.go()
                group.cancel_scope.cancel()
        return self.result

    async def _put(self, question: Question, said: bool | str | Sequence[str]) -> None:
        hash_ = question.hash
        match said:
            case str() | bool():
                reason = said if isinstance(said, str) else ""
                await self.answer(question.call_id, said is True, reason, hash_=hash_)
            case list() | tuple() if question.asks:
                await self.answer(question.call_id, True, answers=said, hash_=hash_)
            case _:
                raise BadInput(
                    f"`approve` said {said!r} about a call of {question.tool}: it has to be "
                    "True, False or a reason why not, or a list of answers to `question.asks`"
                )

    async def _answer_questions(self, approve: Approve) -> None:
        put: set[str] = set()
        while True:
            seen = self.view.seq
            for question in self.questions:
                if question.call_id not in put:
                    put.add(question.call_id)
                    await self._put(question, await approve(question))
            await self._engine.record.news(after=seen)


def denied(call: ToolCall, reason: str) -> Question:
    return Question(call.id, call.name, arguments(call), reason)


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
    )
