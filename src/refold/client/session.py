"""The handle on a session: it takes orders, and gives events and documents.

Every client uses a session through this class, whether the session is open in this process or
in another one. It reads a journal that is folded here, its own or one that is followed, and
every change is an order to its sink (`client.order_sink`). `client.protocol` defines the
orders. The names are in groups, as the comments in the class say; larger groups (`workspace`,
`reports`, `permissions` …) are properties with a class of their own, imported when they are
first used, so that a run without a terminal does not load most of them.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
)
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
from msgspec import UNSET, Struct
from msgspec.structs import replace

from refold.app.policies import budget
from refold.client.dispatch import TURN_IS_RUNNING, Dispatcher
from refold.client.launch import (
    Ask,
    Launch,
    OpenedSession,
    ResumeTarget,
    answer_without_user,
)
from refold.client.order_sink import AlreadyAnswered, OrderResult, OrderSink
from refold.client.protocol import (
    ApprovalResponse,
    Cancel,
    ChangeTags,
    CompactConversation,
    Continue,
    DeleteMessage,
    EditMessage,
    Fork,
    Interrupt,
    ModeAfterPlan,
    Order,
    PlanApproval,
    QuestionResponse,
    Queue,
    Rename,
    SetAgent,
    SetBudget,
    SetDirectory,
    SetEffort,
    SetMode,
    SetModel,
    SetSteps,
    ShellOutput,
    Steer,
    StopBackground,
    StopChild,
    WithdrawMessage,
)
from refold.client.workspace import SessionWorkspace
from refold.config.settings import Settings
from refold.errors import BadInput, first
from refold.journal.events.child_events import ChildAsked
from refold.journal.events.kinds import Ended, Entry, Frame, Judged
from refold.journal.state.fold import View, budget_of
from refold.journal.state.plans import Plan
from refold.session.hub import Subscription
from refold.session.pending_requests import (
    Permission,
    PlanToJudge,
    Questions,
    Request,
    plan_id,
    request_of_call,
    request_of_child,
    requests,
)
from refold.session.question_timeout import NO_ANSWER
from refold.session.recorder import acting_person
from refold.tools.contract import ImageData, Tool
from refold.values.control import PlanReady
from refold.values.messages import ToolCall
from refold.values.modes import AWAITED_SECONDS, Effort, Format, Mode
from refold.values.usage import Budget

if TYPE_CHECKING:
    from refold.app.mcp_servers import McpServers
    from refold.client.catalogue import SessionCatalogue
    from refold.client.choices import AgentChoices, Configuration, ModelChoices
    from refold.client.knowledge import ProjectNotes, Skills
    from refold.client.permissions import Permissions
    from refold.client.questions import Approve, Question
    from refold.client.reports import Reports
    from refold.client.result import Result
    from refold.client.terminal_log import TerminalLog
    from refold.skills.slash_commands import Shortcuts
    from refold.views.stream_json.encode import Document, PersonRequest
    from refold.views.stream_json.encode import Request as RequestDocument
    from refold.views.stream_json.snapshot import ChangedInstructions, Snapshot, Status

_KEPT_NOWHERE = "this session is not saved, so there are no other sessions"
_OPEN_ELSEWHERE = (
    "this session is open in another process: leave it, and start refold for another"
)


class SwitchResult(Struct, frozen=True):
    """The handle on the new session, and what the user must know."""

    session: "Session"
    notices: tuple[str, ...] = ()


class Session:
    """One session. One turn runs at a time.

    A method that changes the session gives an order. A `bool` says whether it changed anything.
    `BadInput` is raised for an order that cannot be carried out, `Held` while another process
    writes the session, and any other `JournalError` if the order cannot be recorded. An event
    is named by its number in the journal, from 1; 0 is before the first.
    """

    def __init__(
        self,
        launch: Launch,
        opened: OpenedSession,
        approve: "Approve | None" = None,
        orders: OrderSink | None = None,
    ) -> None:
        """`orders` is where its orders go; None: it is open in this process."""
        self._launch, self._app, self._engine = launch, opened.app, opened.engine
        self._orders: OrderSink = orders or Dispatcher(launch, opened)
        self._approve, self._busy = approve, False
        self._shown = dict[str, str]()  # the hash with which each request was last shown

    # -- The session

    @property
    def id(self) -> str:
        """The id of the session, whole."""
        return self.view.session.id

    @property
    def view(self) -> View:
        """The state of the session: conversation, account, turn, rights. A frozen value."""
        return self._engine.view

    @property
    def is_saved(self) -> bool:
        """Whether a journal is stored, so that the session can be resumed."""
        return self._app.options.keep

    @property
    def lost_text(self) -> str:
        """What was missing from the end of the journal when it was opened; or ""."""
        return self._engine.lost_text

    @property
    def journal_directory(self) -> Path:
        """The directory of its journal, which exists once there is one."""
        return self._app.home.path(self.id)

    @property
    def owns_turns(self) -> bool:
        """Whether turns end with this process; otherwise they run in another one."""
        return self._orders.owns_turns

    @property
    def end_reason(self) -> str:
        """Why this handle gets no more events; "" while it may."""
        return self._orders.end_reason

    @property
    def has_lease(self) -> bool:
        """Whether this process holds the writer lock, which the first event of the session
        takes.
        """
        return self._engine.record.has_lease

    async def release(self) -> None:
        """Release the writer lock, unless something runs. The session stays open."""
        await self._engine.release()

    async def follow(self) -> None:
        """Fold what another process has recorded, and publish it."""
        await self._engine.record.follow()

    async def close(self) -> None:
        """Leave the session, which can be resumed; its watchers end. One that is open in
        another process stays open there.
        """
        await self._launch.leave(self._engine)

    async def new(self) -> "Session":
        """Close this session, and open a new one in the same directory.

        Raises `BadInput` if this one is open in another process.
        """
        self._check_open_here()
        opened = await self._launch.start()
        await self.close()
        return Session(self._launch, opened, self._approve)

    async def switch(self, target: ResumeTarget, ask: Ask | None = None) -> SwitchResult:
        """Close this session, and open the target in its directory.

        `ask` is asked whether a folder is trusted; without it, it is not. Raises if the
        target cannot be opened; then this session stays open.
        """
        self._check_open_here()
        opened = await self._launch.switch(self._engine, target, ask or answer_without_user)
        session = Session(self._launch, opened, self._approve)
        return SwitchResult(session, opened.notices)

    async def fork(self, at: int | None = None) -> str:
        """Copy the session up to event `at`, or all of it. The id of the copy, not opened.

        Raises `BadInput` if there is no such event, or if sessions are not saved.
        """
        return (await self._order(Fork(at))).copy

    async def rename(self, name: str) -> bool:
        """Name the session; "" removes the name. Raises `BadInput` for an invalid name."""
        return await self.send(Rename(name))

    async def tag(self, changes: Sequence[str]) -> bool:
        """+TAG adds a tag, -TAG removes one. Raises `BadInput` for an invalid tag."""
        return await self.send(ChangeTags(tuple(changes)))

    async def set_directory(
        self, directory: str | Path = "", more_directories: Sequence[str | Path] = ()
    ) -> Sequence[str]:
        """Continue in another directory ("": the same), or with more of them. Returns what
        the user must know.

        Raises `BadInput` while a turn runs, and for a path that is not a directory. The handle stays the same; watchers must watch again.
        """
        order = SetDirectory(str(directory), tuple(map(str, more_directories)))
        opened = (await self._order(order)).opened
        return opened.notices if opened is not None else ()

    # -- Turns

    async def run(self, text: str, images: Sequence[str | Path] = ()) -> "Result":
        """Send a message and run the turn. A failure of the model is an outcome of the result.

        `images` are files for the model to see. Raises `BadInput` if a turn runs already, and
        for a file that is not an image.
        """
        from refold.tools.images import image_file

        shown = [image_file(Path(name), str(name)) for name in images]
        return await self._turn(lambda: self.say(text, images=shown))

    async def run_woken(self) -> "Result":
        """Run the turns that background commands begin, as long as one may still wake the
        agent.

        For a client that runs one task. It stops waiting after ten minutes without news.
        """
        while self.view.commands_to_await:
            with anyio.move_on_after(AWAITED_SECONDS) as patience:
                await self.wait_for_change(after=self.view.seq)
            if patience.cancelled_caught:
                break
            await self._settle_with_answers()
        return self.result

    async def continue_(self) -> "Result":
        """Continue where the last turn ended, or finish one that a crash cut off.

        Raises `BadInput` if a turn runs, or there was none yet.
        """

        async def send_order() -> None:
            if self.idle:
                await self.send(Continue())

        return await self._turn(send_order)

    async def approve_plan(self, text: str = "", mode: ModeAfterPlan = "") -> "Result":
        """Approve the plan that waits, or `text` instead of it, and carry it out.

        `mode` is the one that follows; "" for the one before the plan. Raises `BadInput` if
        no plan waits.
        """
        return await self._turn(lambda: self.send(PlanApproval(0, True, text, mode=mode)))

    async def reject_plan(self, feedback: str = "") -> "Result":
        """Reject the plan that waits. With `feedback` the model revises it.

        Raises `BadInput` if no plan waits.
        """
        order = PlanApproval(0, False, feedback=feedback)
        return await self._turn(lambda: self.send(order))

    @asynccontextmanager
    async def stream(self, text: str) -> AsyncGenerator[AsyncIterator[Frame], None]:
        """Like `run`, and yield every event and piece of text as it comes.

            async with session.stream("Fix the test.") as frames:
                async for frame in frames:
                    print(frame.item)
            print(session.result.text)

        The frames end with the turn. Leaving earlier stops it.
        """
        watch = self.watch()

        async def run_turn() -> None:
            try:
                await self.say(text)
                await self._settle_with_answers()
            finally:
                watch.close()

        with self._exclude_other_turns(), _unwrap_error():
            async with anyio.create_task_group() as group:
                group.start_soon(run_turn)
                try:
                    async with aclosing(watch.frames()) as frames:
                        yield frames
                finally:
                    await self.cancel("no client is connected any more")

    @property
    def result(self) -> "Result":
        """The result of the last turn."""
        from refold.client.result import result_of

        return result_of(self.view, self.id)

    @property
    def idle(self) -> bool:
        """Whether no turn runs, and no waiting message may begin one."""
        return self._engine.idle

    @property
    def running(self) -> bool:
        """Whether a turn runs in this process."""
        return self._engine.running

    @property
    def compacting(self) -> bool:
        """Whether the conversation is being compacted now, between two turns."""
        return self._engine.beside

    @property
    def has_work(self) -> bool:
        """Whether there is work for `step`."""
        return not self.idle or self._orders.waiting

    async def step(self) -> bool:
        """Carry out the next order. False if there is none, or the user is asked."""
        return await self._orders.step()

    async def settle(self) -> None:
        """Run turns until nothing is left to do, or the user has to be asked."""
        while await self.step():
            pass

    # -- Messages

    async def say(
        self,
        text: str,
        *,
        when: Literal["now", "next"] = "now",
        client_key: str = "",
        images: Sequence[ImageData] = (),
        typed: str | None = None,
    ) -> bool:
        """Send a message, which is in the journal at once: for the running turn, or for the
        next one.

        `typed` is the part that the user wrote, if a template or a pipe added the rest.
        """
        kind = Steer if when == "now" else Queue
        return await self.send(kind(text, tuple(images), typed, client_key=client_key))

    async def steer(self, text: str) -> None:
        """A message for the running turn: the model has it at its next step."""
        await self.send(Steer(text))

    async def queue(self, text: str) -> None:
        """A message for after the running turn; it begins the next one."""
        await self.send(Queue(text))

    async def record_command(self, command: str, output: str) -> bool:
        """Record a command that the user ran: the model gets it with the next message."""
        return await self.send(ShellOutput(command, output))

    async def edit_message(self, message: int, text: str) -> bool:
        """Change a message of the conversation, by the number of its event."""
        return await self.send(EditMessage(message, text))

    async def delete_message(self, message: int) -> bool:
        """Take a message out of the conversation, by the number of its event."""
        return await self.send(DeleteMessage(message))

    async def withdraw_message(self, message: int) -> bool:
        """Withdraw a message that waits for the end of the turn, by the number of its event."""
        return await self.send(WithdrawMessage(message))

    def forget_orders(self) -> None:
        """Drop the messages that wait for a turn of their own."""
        self._orders.forget()

    async def compact(self, focus: str = "", *, prune: bool = False) -> bool:
        """Compact the conversation, now or before the next step. False if it is empty, or
        the compaction was stopped.

        `focus` is what the summary must preserve; `prune` only prunes old tool results.
        """
        order = CompactConversation("prune" if prune else "full", focus)
        if not self.view.conversation.messages:
            return False
        within_turn = self.running or self.view.turn.seq
        return await (self.send(order) if within_turn else self._orders.compact(order))

    # -- Orders to what runs

    async def send(self, order: Order) -> bool:
        """Take an order. False if it changes nothing: it is so already, or nothing runs.

        Raises `BadInput` for one that cannot be carried out. A message waits for `settle`,
        unless it is for the turn that runs.
        """
        return (await self._order(order)).changed

    async def interrupt(self, instead: str = "", *, reason: str = "interrupted") -> bool:
        """Stop the turn at once. False if nothing runs. `instead` is the next message."""
        return await self.send(Interrupt(instead, reason))

    async def cancel(self, reason: str = "cancelled") -> bool:
        """Stop the turn at once, with the outcome "cancelled". False if nothing runs."""
        return await self.send(Cancel(reason))

    async def stop(self, name: str = "") -> bool:
        """Stop a subagent and all below it ("": all of them), or a background command.

        Raises `BadInput` if none of that name runs.
        """
        in_background = self.view.background.command(name) is not None
        return await self.send(StopBackground(name) if in_background else StopChild(name))

    # -- Requests: calls, questions and plans that wait for the user

    @property
    def requests(self) -> tuple[Request, ...]:
        """The calls, questions and plan that wait for the user, in order."""
        return requests(self.view)

    @property
    def questions(self) -> "tuple[Question, ...]":
        """The calls that wait for `answer`."""
        from refold.client.questions import questions

        return questions(self._engine)

    @property
    def plan(self) -> Plan | None:
        """The plan that waits to be approved, after an outcome `plan_ready`."""
        return self.view.plans.waiting

    async def answer(
        self,
        request: str | Permission | Questions,
        allowed: bool,
        reason: str = "",
        *,
        grant: str = "",
        rule: str | Sequence[str] = "",
        answers: Sequence[str] = (),
    ) -> bool:
        """Answer a call that waits for approval.

        Return False if another client answered first, or if the call has changed.

        `request` is what was shown, or the id of a waiting call. `grant` is "session" or
        "always", for the offered `rule` (by default the first; or several rules that
        suffice together), or one of these rules for the session; `answers` are to the
        questions of the call.
        """
        call_id = request if isinstance(request, str) else request.id
        pending = next((r for r in self.requests if r.id == call_id), None)
        if pending is None or isinstance(pending, PlanToJudge):
            return False
        hash_ = pending.call.hash
        if not isinstance(request, str) and request.call.hash != hash_:
            return False
        order = (
            QuestionResponse(call_id, tuple(answers), hash_)
            if allowed and isinstance(pending, Questions)
            else ApprovalResponse(
                call_id, allowed, hash_, reason, grant, *_approval_fields(rule)
            )
        )
        try:
            return await self.send(order)
        except AlreadyAnswered:
            return False

    async def judge_plan(
        self,
        plan: int,
        approved: bool,
        *,
        text: str = "",
        feedback: str = "",
        mode: ModeAfterPlan = "",
    ) -> bool:
        """Approve or reject a plan; the turn that follows is not run. False: too late.

        `mode` is the one that follows an approval; "" for the one before the plan.
        """
        try:
            return await self.send(PlanApproval(plan, approved, text, feedback, mode))
        except AlreadyAnswered:
            return False

    def unmasked_call(self, call: ToolCall) -> ToolCall:
        """A call as the model made it: the journal redacts secrets, and the user who
        approves must see what will be done.
        """
        return self._engine.unmasked_call(call)

    def request(self, event: "PersonRequest", seq: int) -> "RequestDocument":
        """The document about the request that this event makes.

        An answer without a hash is to what was shown last.
        """
        from refold.views.stream_json.encode import approval_request, question

        request = _request_of(event, self.view)
        if request is None:  # it had ended before this could be sent
            return approval_request(event, seq)
        self._shown[request.id] = event.hash
        if isinstance(request, Questions):
            return question(event, seq, request.questions)
        call, permissions = self.unmasked_call(request.call.call), self.permissions
        return replace(
            approval_request(event, seq, call, permissions.rule_sets(request)),
            easier_mode=permissions.easier_mode(request) or UNSET,
            conditions=permissions.run_conditions(call) or UNSET,
        )

    async def waiting(self) -> "Sequence[Document]":
        """The documents of requests that wait for the user, with their original numbers."""
        wanted = {request.id for request in self.requests}
        if not wanted:
            return ()
        from refold.views.stream_json.encode import documents_of

        entries = await self._engine.record.entries()
        newest = {id_: e for e in entries if (id_ := _id_of(e)) in wanted}
        groups = [
            list(documents_of(Frame(e.seq, 0, e), live=False, make_request=self.request))
            for e in newest.values()
        ]
        # A plan stands behind the result of the call that wrote it.
        return [group[-1] for group in groups]

    def show_question(
        self, call_id: str, hash_: str = ""
    ) -> AbstractAsyncContextManager[None]:
        """Count the time limit of the question within the block, while a screen shows it."""
        return self._engine.question_timeout.show_question(call_id, hash_)

    @property
    def question_seconds(self) -> float | None:
        """How many seconds a question waits on a screen; None: without limit."""
        return self._engine.question_timeout.seconds

    @property
    def timeout_reason(self) -> str:
        """The reason in the journal if a question timed out and was denied."""
        return NO_ANSWER.format(seconds=self.question_seconds or 0)

    # -- What applies to the next turn

    @property
    def settings(self) -> Settings:
        """The settings that apply in its directory."""
        return self._app.settings

    @property
    def model(self) -> str:
        """The model of the next turn, as provider/model; "" if there is none."""
        set_elsewhere = self._orders.model
        if set_elsewhere:
            return self.view.session.model or set_elsewhere
        return self._app.model_of(self.view)

    def check_model(self) -> None:
        """Raise `BadInput` if the model of the next turn cannot be used."""
        self._app.models.check(self.model)

    async def set_model(self, model: str) -> bool:
        """The model from the next turn on, as provider/model. Raises `BadInput` while a turn
        runs, and if there can be none of that name.
        """
        return await self.send(SetModel(model))

    @property
    def format(self) -> Format | Literal[""]:
        """The format of a conversation that is sent as one text; "": as messages if possible."""
        return self.view.session.format or self.settings.backend.format

    async def set_format(self, form: Format) -> bool:
        """Set the format of a conversation that is sent as one text, from the next turn on."""
        return await self.send(SetModel("", form))

    @property
    def effort(self) -> Effort:
        """How hard the model thinks in the next turn."""
        return self.view.session.effort or self.settings.effort

    async def set_effort(self, effort: Effort) -> bool:
        """Set the effort from the next turn on; "": that of the settings.

        Raises `BadInput` while a turn runs.
        """
        return await self.send(SetEffort(effort))

    @property
    def agent(self) -> str:
        """The agent of the next turn: main where the one that was chosen no longer exists."""
        named = self.view.session.agent or self.settings.agent
        try:
            return self._app.agents.find(named, "main").name
        except BadInput:
            return "main"

    async def set_agent(self, agent: str) -> bool:
        """The agent from the next turn on, by name. Raises `BadInput` while a turn runs, and
        for an unknown name.
        """
        return await self.send(SetAgent(agent))

    async def set_preset(self, preset: str) -> bool:
        """The prompt of the agent main from the next turn on, by name. Raises `BadInput` as
        `set_agent` does.
        """
        return await self.send(SetAgent("", preset))

    @property
    def mode(self) -> Mode:
        """The permission mode: it holds for the next call."""
        return self.permissions.mode

    async def set_mode(self, mode: Mode) -> bool:
        """Set the permission mode from the next call on."""
        return await self.send(SetMode(mode))

    @property
    def budget(self) -> Budget:
        """The budget of a turn."""
        return budget_of(self.view, budget(self.settings))

    async def set_budget(self, budget: Budget) -> bool:
        """The budget of a turn, including the running one."""
        return await self.send(
            SetBudget(budget.dollars, budget.tokens, budget.calls, budget.seconds)
        )

    @property
    def steps(self) -> int:
        """The step limit of a turn, in model responses; 0: no limit."""
        watched = self._app.options.watched
        return self.view.rights.steps or self.settings.limits.turn_steps(watched=watched)

    async def set_steps(self, steps: int) -> bool:
        """Set the step limit of a turn, in model responses; 0: the limit of the settings."""
        return await self.send(SetSteps(steps))

    # -- What it has

    @property
    def status(self) -> "Status":
        """The status document: activity, choices for the next turn, and usage."""
        from refold.client.elsewhere import address_of_directory
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
        waiting = [
            request.id for request in self.requests if not isinstance(request, PlanToJudge)
        ]
        window = self._app.settings.context.default_window_tokens
        document = status(self.view, choices, waiting, window)
        address = address_of_directory(document.directory)
        return replace(document, address=address, ports=self.workspace.new_ports)

    async def find_changed_instructions(self) -> "ChangedInstructions | None":
        """The instructions of its folder that the user trusts in another version; or None."""
        from refold.client.changed_instructions import pending_question

        return await anyio.to_thread.run_sync(pending_question, self._app)

    @property
    def snapshot(self) -> "Snapshot":
        """The conversation as the model has it now, and the status: a document."""
        from refold.views.stream_json.snapshot import snapshot

        return snapshot(self.view, self.status)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of all agents; `reports.next_tools` has those of the next turn."""
        return self._app.all_tools

    def tool(self, name: str) -> Tool | None:
        """The tool of this name, of any agent; None: there is none."""
        return _find_tool(name, self.tools)

    @property
    def mcp(self) -> "McpServers | None":
        """The MCP servers that are configured here; None if there are none."""
        return self._app.mcp

    @property
    def hooks(self) -> Sequence[tuple[str, str]]:
        """The hooks that apply here: what each does, and the file that has it."""
        return self._app.hooks.list_hooks if self._app.hooks else ()

    @property
    def shortcuts(self) -> "Shortcuts":
        """The meanings of `/name words`, except for commands of the client."""
        return self._app.shortcuts(self._launch.commands())

    def notices(self) -> tuple[str, ...]:
        """Notices for the start that the user has not seen before."""
        return self._launch.notices(self._app, self._engine)

    def protection_notices(self) -> tuple[str, ...]:
        """Notices of this directory alone: missing protection, and files that are not read.

        It tests the sandbox: call it in a thread.
        """
        return self._app.notices()

    # -- Events

    def watch(
        self, limit: float = inf, *, live: float = inf, kinds: tuple[type, ...] = ()
    ) -> Subscription:
        """Subscribe to events and live text, of these `kinds`, or of all.

        The subscription ends when more than `limit` frames wait. While `live` frames
        wait, live text is left out.
        """
        return self._engine.hub.watch(limit, live=live, kinds=kinds)

    def on_event(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` synchronously at each event, until the returned function is called."""
        return self._engine.hub.subscribe(listener)

    async def wait_for_change(self, after: int) -> None:
        """Return when there is an event after this one."""
        await self._engine.record.wait_for_event(after=after)

    async def events(self, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Yield every event after this one: those of the journal, then each as it is
        recorded.
        """
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
        """The content that an event refers to by its sha256. Raises `JournalError`."""
        return await self._engine.record.get(name)

    # -- Groups, each imported when it is first used

    @property
    def permissions(self) -> "Permissions":
        """Rules and modes: what is allowed, and why."""

        from refold.client.permissions import Permissions

        return Permissions(self._app, self._engine)

    @property
    def workspace(self) -> SessionWorkspace:
        """Its files, checkpoints and images."""
        return SessionWorkspace(self._app, self._engine, self._order)

    @property
    def terminal_log(self) -> "TerminalLog":
        """Records the terminals that the user opens in the page."""

        from refold.client.terminal_log import TerminalLog

        return TerminalLog(self._engine)

    @property
    def models(self) -> "ModelChoices":
        """The models that can be chosen."""

        from refold.client.choices import ModelChoices

        return ModelChoices(self._app, self._engine)

    @property
    def agents(self) -> "AgentChoices":
        """The agents and prompts that can be chosen."""

        from refold.client.choices import AgentChoices

        return AgentChoices(self._app, self._engine)

    @property
    def config(self) -> "Configuration":
        """The settings as they are stored, and how to change a default."""

        from refold.client.choices import Configuration

        return Configuration(self._app, self._launch.flags)

    @property
    def reports(self) -> "Reports":
        """What was done and spent: calls, files, context, time."""

        from refold.client.reports import Reports

        return Reports(self._app, self._engine)

    @property
    def catalogue(self) -> "SessionCatalogue":
        """The sessions of its directory. Raises `BadInput` if none are stored."""
        if not self.is_saved:
            raise BadInput(_KEPT_NOWHERE)
        from refold.client.catalogue import SessionCatalogue

        directory = self.view.session.own_directory or self._app.directory
        return SessionCatalogue(self._app.home, directory, self.id)

    @property
    def skills(self) -> "Skills | None":
        """The skills; None if they are off."""
        from refold.client.knowledge import Skills

        return Skills(self._app) if self.settings.skills else None

    @property
    def memory(self) -> "ProjectNotes | None":
        """The notes; None if memory is off, or nothing is stored."""
        from refold.client.knowledge import ProjectNotes

        on = self.settings.memory and self.is_saved
        return ProjectNotes(self._app, self._engine) if on else None

    async def _order(self, order: Order) -> OrderResult:
        if isinstance(order, ApprovalResponse | QuestionResponse) and not order.hash:
            order = replace(order, hash=self._shown.get(order.call_id, ""))
        if person := acting_person():
            order = replace(order, by=person)
        result = await self._orders.send(order)
        if result.opened is not None:
            self._app, self._engine = result.opened.app, result.opened.engine
        return result

    def _check_open_here(self) -> None:
        if not self.owns_turns:
            raise BadInput(_OPEN_ELSEWHERE)

    async def _turn(self, order: Callable[[], Awaitable[object]]) -> "Result":
        with self._exclude_other_turns():
            await order()
            return await self._settle_with_answers()

    @contextmanager
    def _exclude_other_turns(self) -> Generator[None]:
        if self._busy or self.running:
            raise BadInput(TURN_IS_RUNNING)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    async def _settle_with_answers(self) -> "Result":
        with _unwrap_error():
            async with anyio.create_task_group() as group:
                if self._approve is not None:
                    from refold.client.questions import answer_all

                    group.start_soon(answer_all, self._engine, self._approve)
                await self.settle()
                while self._approve is not None and self.questions:
                    await self.wait_for_change(after=self.view.seq)
                    await self.settle()
                group.cancel_scope.cancel()
        return self.result


@contextmanager
def _unwrap_error() -> Generator[None]:
    """Raise the error that a task failed with, not the group that wraps it."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first(group) from group


def _find_tool(name: str, tools: Sequence[Tool]) -> Tool | None:
    for tool in tools:
        if tool.name == name:
            return tool
    from refold.tools.team import TEAM_TOOLS  # an agent has them only in a team

    return next((tool for tool in TEAM_TOOLS if tool.name == name), None)


def _id_of(entry: Entry) -> str:
    """The id of the request that this event makes; "" if it makes none."""
    match entry.event:
        case ChildAsked(id_) | Judged(id_, "ask"):
            return id_
        case Ended(control=PlanReady()):
            return plan_id(entry.seq)
        case _:
            return ""


def _request_of(event: "PersonRequest", view: View) -> Permission | Questions | None:
    if isinstance(event, ChildAsked):
        return request_of_child(event)
    open_call = view.conversation.call(event.call_id)
    return None if open_call is None else request_of_call(open_call)


def _approval_fields(rule: str | Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The fields of an `ApprovalResponse`: one rule, or a set."""
    return (rule, ()) if isinstance(rule, str) else ("", tuple(rule))
