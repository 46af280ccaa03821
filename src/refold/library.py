"""refold for programs: build an agent, run turns, watch them, answer for the person.

    from refold import Agent, Effect, Reply, tool

    @tool(Effect.LOOK)
    async def weather(city: str) -> Reply:
        "Say what the weather is in a city."
        return Reply(f"rain in {city}")

    agent = Agent(model="anthropic/claude-sonnet-5-5", tools=[weather])
    print(agent.run("Do I need an umbrella in Oslo?").text)

Nothing here is global: agents with different homes live side by side. `run` is
a thin synchronous door; everything else is async.
"""

import os
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
import msgspec
from msgspec import Raw, Struct

from refold.app import App, Wishes
from refold.config.load import load
from refold.config.paths import paths
from refold.errors import BadInput, first
from refold.journal.fold import View
from refold.journal.frame import Frame
from refold.provider.port import Provider
from refold.session.session import Session as Engine
from refold.tools.contract import Tool
from refold.tools.pictures import picture_file
from refold.values.effort import Effort
from refold.values.messages import ToolCall
from refold.values.rights import Mode
from refold.values.usage import Usage
from refold.views.result import arguments, result

__all__ = ["Agent", "Question", "Result", "Session"]


class Question(Struct, frozen=True):
    """A call that the rules are not sure of. `reason` says why it is asked about."""

    call_id: str
    tool: str
    arguments: Any
    reason: str


class Result(Struct, frozen=True):
    """What a turn came to.

    `outcome` is one of answered, final, interrupted, cancelled, step_limit, stuck,
    denied, failed. A `step_limit` is a pause: `Session.continue_` goes on. `files`
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


Approve = Callable[[Question], Awaitable[bool | str]]


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

    async def answer(self, call_id: str, allowed: bool, reason: str = "") -> bool:
        """Decide on a call that waits. False if somebody was first."""
        return await self._engine.inbox.answer(call_id, allowed=allowed, reason=reason)

    async def set_mode(self, mode: Mode) -> None:
        """How much runs unasked: default, accept-edits or bypass."""
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
        asked = (c for c in self.view.talk.calls if c.stage == "asked")
        return tuple(_question(self._engine.as_made(c.call), c.reason) for c in asked)

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

    async def _answer_questions(self, approve: Approve) -> None:
        put: set[str] = set()
        while True:
            seen = self.view.seq
            for question in self.questions:
                if question.call_id not in put:
                    put.add(question.call_id)
                    said = await approve(question)
                    reason = said if isinstance(said, str) else ""
                    await self.answer(question.call_id, said is True, reason)
            await self._engine.record.news(after=seen)


class Agent(Struct, frozen=True, kw_only=True):
    """What an agent is: a model, tools, rights and a place to work. A value.

    `tools` are added to the built-in ones, or replace them with `builtin=False`;
    `house` is what they ask for by name after their `*`. `settings` are as in
    config.toml, by dotted key. `approve` is asked about calls that no rule covers:
    True allows, False or a reason refuses; without it they are refused. `home`
    is where sessions and settings are kept (default: as for the command line).
    `schema` is a JSON Schema that final answers have to match: see `Result.data`.
    """

    model: str = ""
    effort: Effort = ""
    schema: Mapping[str, object] | None = None
    tools: Sequence[Tool] = ()
    builtin: bool = True
    house: Mapping[str, object] = {}
    mode: Mode | None = None
    directory: str | Path = "."
    system: str = ""
    approve: Approve | None = None
    provider: Provider | None = None
    home: str | Path = ""
    keep: bool = True
    settings: Mapping[str, object] = {}

    def run(self, words: str) -> Result:
        """One turn in a new session, start to end, for programs without async."""
        return anyio.run(self._one_turn, words)

    @asynccontextmanager
    async def session(self, id_: str = "") -> AsyncGenerator[Session, None]:
        """A new session, or the one with this id. Closed at the end of the `with`.

        A session taken up goes on with the model and mode it had, unless this agent
        names others.
        """
        app = self._app()
        try:
            if id_:
                found = app.home.find(id_).id
                engine = await app.resume(found)
            else:
                found, engine = await app.start()
            async with engine:
                if id_ and self.model:
                    await engine.inbox.choose_model(app.models.full(self.model))
                if id_ and self.effort:
                    await engine.inbox.choose_effort(self.effort)
                if id_ and self.mode:
                    await engine.inbox.set_mode(self.mode)
                yield Session(found, engine, self.approve, app.models.full)
        finally:
            await app.aclose()

    async def _one_turn(self, words: str) -> Result:
        async with self.session() as session:
            return await session.run(words)

    def _app(self) -> App:
        own = {"REFOLD_HOME": str(self.home)} if self.home else {}
        environ = {**os.environ, **own}
        places = paths(environ)
        chosen = {
            "effort": self.effort or None,
            "permission_mode": self.mode,
        }
        loaded = load(places.settings, environ, {**chosen, **self.settings})
        wishes = Wishes(
            directory=Path(self.directory).absolute(),
            model=self.model,
            attended=self.approve is not None,
            own_system=self.system,
            keep=self.keep,
            provider=self.provider,
            tools=_all_tools(self.tools, builtin=self.builtin),
            house=self.house,
            schema=None if self.schema is None else Raw(msgspec.json.encode(self.schema)),
        )
        return App(loaded.settings, places, environ, wishes)


def _all_tools(tools: Sequence[Tool], *, builtin: bool) -> tuple[Tool, ...]:
    from refold.tools.builtin import builtin as ours

    found = (*(ours() if builtin else ()), *tools)
    given = cast("Sequence[object]", found)  # not everybody has a type checker
    if wrong := [each for each in given if not isinstance(each, Tool)]:
        raise BadInput(
            f"{wrong[0]!r} is no tool: put @tool(Effect.LOOK), or what it does, above it"
        )
    names = [tool.spec.name for tool in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise BadInput(f"there are two tools named {twice!r}: rename one of them")
    return found


def _question(call: ToolCall, reason: str) -> Question:
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
        denials=tuple(_question(d.call, d.reason) for d in turn.denials),
        files={each["path"]: each["kind"] for each in files},
        data=document.get("structured"),
    )
