"""The state of a session, as its handle shows it: its view, its settings, its events.

Nothing here changes the session, except through groups that say so (`workspace.rewind`,
`permissions.always`, `memory.add`). A group is imported when it is first used, so that a
run without a terminal does not load most of them.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import TYPE_CHECKING

import anyio

from refold.app.policies import budget
from refold.client.launch import Launch, OpenedSession
from refold.client.workspace import SessionWorkspace
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.journal.events.kinds import Entry
from refold.journal.state.fold import View, budget_of
from refold.journal.state.plans import Plan
from refold.session.hub import Subscription
from refold.session.pending_requests import PlanToJudge, Request, requests
from refold.session.question_timeout import LATE
from refold.tools.contract import Tool
from refold.values.control import Todo
from refold.values.messages import ToolCall
from refold.values.modes import Effort, Mode
from refold.values.usage import Budget

if TYPE_CHECKING:
    from refold.client.catalogue import SessionCatalogue
    from refold.client.choices import AgentChoices, Configuration, ModelChoices
    from refold.client.knowledge import ProjectNotes, Skills
    from refold.client.permissions import Permissions
    from refold.client.reports import Reports
    from refold.skills.slash_commands import Shortcuts
    from refold.views.stream_json.snapshot import ChangedInstructions, Snapshot, Status

_KEPT_NOWHERE = "this session is not saved, so there are no other sessions"


class SessionState:
    """The part of `Session` that reads."""

    def __init__(self, launch: Launch, opened: OpenedSession) -> None:
        self._launch, self._app, self._engine = launch, opened.app, opened.engine

    @property
    def id(self) -> str:
        return self.view.session.id

    @property
    def view(self) -> View:
        """What the session knows: conversation, account, turn, rights. A frozen value."""
        return self._engine.view

    @property
    def idle(self) -> bool:
        """No turn is running, and no waiting message may begin one."""
        return self._engine.idle

    @property
    def running(self) -> bool:
        """Does a turn run in this process?"""
        return self._engine.running

    @property
    def compacting(self) -> bool:
        """Is the conversation compacted now, between two turns?"""
        return self._engine.beside

    @property
    def keeps(self) -> bool:
        """Is a journal kept, so that the session can be resumed?"""
        return self._app.options.keep

    @property
    def lost(self) -> str:
        """What was missing from the end of the journal when it was opened; or ""."""
        return self._engine.lost

    @property
    def settings(self) -> Settings:
        """Those that hold in its directory."""
        return self._app.settings

    @property
    def model(self) -> str:
        """The model of the next turn, as provider/model; "" if there is none."""
        return self._app.model_of(self.view)

    @property
    def effort(self) -> Effort:
        return self.view.session.effort or self.settings.effort

    @property
    def agent(self) -> str:
        """The agent of the next turn: main where the one that was chosen no longer exists."""
        named = self.view.session.agent or self.settings.agent
        try:
            return self._app.agents.find(named, "main").name
        except BadInput:
            return "main"

    @property
    def mode(self) -> Mode:
        return self.permissions.mode

    @property
    def budget(self) -> Budget:
        """What a turn may use up."""
        return budget_of(self.view, budget(self.settings))

    @property
    def steps(self) -> int:
        """How many model responses a turn may have; 0: as many as it takes."""
        watched = self._app.options.watched
        return self.view.rights.steps or self.settings.limits.turn_steps(watched=watched)

    @property
    def todos(self) -> tuple[Todo, ...]:
        return self.view.conversation.todos

    @property
    def plan(self) -> Plan | None:
        """The plan that waits to be approved, after an outcome `plan_ready`."""
        return self.view.plans.waiting

    @property
    def requests(self) -> tuple[Request, ...]:
        """What waits for the user: calls, questions, a plan; in their order."""
        return requests(self.view)

    @property
    def status(self) -> "Status":
        """What it does, what applies to the next turn, and what it has used: a document."""
        from refold.views.stream_json.snapshot import Choices, status

        choices = Choices(
            model=self.model,
            agent=self.agent,
            mode=self.mode,
            effort=self.effort,
            steps=self.steps,
            budget=self.budget,
            teams=self.permissions.teams,
            tracing=self.permissions.tracing,
        )
        waiting = [each.id for each in self.requests if not isinstance(each, PlanToJudge)]
        return status(self.view, choices, waiting)

    async def changed_instructions(self) -> "ChangedInstructions | None":
        """The instructions of its folder that the user trusts in another version; or None."""
        from refold.client.changed_instructions import question_of

        return await anyio.to_thread.run_sync(question_of, self._app)

    @property
    def snapshot(self) -> "Snapshot":
        """The conversation as the model has it now, and the status: a document."""
        from refold.views.stream_json.snapshot import snapshot

        return snapshot(self.view, self.status)

    @property
    def tools(self) -> Sequence[Tool]:
        """Those of every agent; `reports.offered_tools` has those of the next turn."""
        return self._app.every_tool

    def tool(self, name: str) -> Tool | None:
        return _named(name, self.tools)

    def notices(self) -> tuple[str, ...]:
        """What the user must be told at the start, and was not told before."""
        return self._launch.notices(self._app, self._engine)

    def protection_notices(self) -> tuple[str, ...]:
        """The same of this directory alone: what is missing of protection, what is unread.

        Waits for the machine: call it in a thread.
        """
        return self._app.notices()

    def check_model(self) -> None:
        """Raises `BadInput` where the model of the next turn cannot be asked."""
        self._app.models.check(self.model)

    def as_made(self, call: ToolCall) -> ToolCall:
        """A call as the model made it: the journal redacts secrets, and the user who
        approves must see what will be done.
        """
        return self._engine.as_made(call)

    def watch(
        self, limit: float = inf, *, live: float = inf, only: tuple[type, ...] = ()
    ) -> Subscription:
        """Join now. `limit` frames may wait, or it is cut off; where `live` frames wait, live
        news is left out. `only` these kinds of news, or all. Any number may watch."""
        return self._engine.hub.watch(limit, live=live, only=only)

    def on_event(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` at each event, at once, until the returned function is called."""
        return self._engine.hub.subscribe(listener)

    async def changed(self, after: int) -> None:
        """Return when there is an event after this one."""
        await self._engine.record.wait_for_event(after=after)

    async def events(self, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Every event after this one: those of the journal, then each as it is written."""
        watch = self.watch(live=0)
        try:
            for entry in await self.reports.entries(after):
                after = entry.seq
                yield entry
            async for frame in watch.frames():
                if isinstance(frame.item, Entry) and frame.seq > after:
                    yield frame.item
        finally:
            watch.close()

    async def blob(self, name: str) -> bytes:
        """What an event names by its sha256. Raises `JournalError`."""
        return await self._engine.record.get(name)

    @property
    def question_seconds(self) -> float | None:
        """How long a question waits on a screen; None: without limit."""
        return self._engine.question_timeout.seconds

    @property
    def late(self) -> str:
        """The reason of a denial that no user gave: the question timed out."""
        return LATE.format(seconds=self.question_seconds or 0)

    def shown(self, call_id: str, hash_: str = "") -> AbstractAsyncContextManager[None]:
        """While in here, a screen shows the question of this call."""
        return self._engine.question_timeout.shown(call_id, hash_)

    @property
    def permissions(self) -> "Permissions":
        from refold.client.permissions import Permissions

        return Permissions(self._app, self._engine)

    @property
    def workspace(self) -> SessionWorkspace:
        return SessionWorkspace(self._app, self._engine)

    @property
    def models(self) -> "ModelChoices":
        from refold.client.choices import ModelChoices

        return ModelChoices(self._app, self._engine)

    @property
    def agents(self) -> "AgentChoices":
        from refold.client.choices import AgentChoices

        return AgentChoices(self._app, self._engine)

    @property
    def config(self) -> "Configuration":
        from refold.client.choices import Configuration

        return Configuration(self._app, self._launch.flags)

    @property
    def reports(self) -> "Reports":
        from refold.client.reports import Reports

        return Reports(self._app, self._engine)

    @property
    def catalogue(self) -> "SessionCatalogue":
        """The sessions of its directory. Raises `BadInput` where none are kept."""
        if not self.keeps:
            raise BadInput(_KEPT_NOWHERE)
        from refold.client.catalogue import SessionCatalogue

        where = self.view.session.own_directory or self._app.directory
        return SessionCatalogue(self._app.home, where, self.id)

    @property
    def skills(self) -> "Skills | None":
        """None: they are off."""
        from refold.client.knowledge import Skills

        return Skills(self._app) if self.settings.skills else None

    @property
    def memory(self) -> "ProjectNotes | None":
        """None: it is off, or nothing is kept."""
        from refold.client.knowledge import ProjectNotes

        on = self.settings.memory and self.keeps
        return ProjectNotes(self._app, self._engine) if on else None

    @property
    def shortcuts(self) -> "Shortcuts":
        """The meanings of `/name words`, except for commands of the client."""
        return self._app.shortcuts(self._launch.commands())


def _named(name: str, tools: Sequence[Tool]) -> Tool | None:
    for tool in tools:
        if tool.name == name:
            return tool
    from refold.tools.team import TEAM_TOOLS  # an agent has them only in a team

    return next((tool for tool in TEAM_TOOLS if tool.name == name), None)
