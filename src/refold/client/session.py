"""The handle on a session: it takes orders, and returns events and documents.

Every client uses a session through this class, whether the session is open in this process
or in another one. The state is folded from a journal in this process. Every change is an
order to the sink of the session (`client.order_sink`); `client.protocol` defines the
orders. The methods are grouped by the comments in the class. Larger groups (`workspace`,
`reports`, `permissions` …) are properties that return a class of their own. They are
imported when they are first used, so a run without a terminal does not load most of them.
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
    """The handle on the new session, and notices that the user must see."""

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
        """Make the handle of a session that was opened by `launch`.

        `orders` is the sink for its orders; None if the session is open in this process.
        `approve` is called with each question to the user.
        """
        self._launch = launch
        self._app = opened.app
        self._engine = opened.engine
        self._orders: OrderSink = orders or Dispatcher(launch, opened)
        self._approve = approve
        self._runs_turn = False  # whether `run` or a similar method is running a turn
        # For each request, the hash of what was last shown of it.
        self._shown_hashes = dict[str, str]()

    # -- The session

    @property
    def id(self) -> str:
        """The full id of the session."""
        return self.view.session.id

    @property
    def view(self) -> View:
        """The state of the session (conversation, account, turn, rights) as a frozen
        value.
        """
        return self._engine.view

    @property
    def is_saved(self) -> bool:
        """Whether a journal is stored, so that the session can be resumed."""
        return self._app.options.keep

    @property
    def lost_text(self) -> str:
        """Describes what was missing from the end of the journal when it was opened; "" if
        nothing was.
        """
        return self._engine.lost_text

    @property
    def journal_directory(self) -> Path:
        """The directory of the session's journal. It exists only once an event was recorded."""
        return self._app.home.path(self.id)

    @property
    def owns_turns(self) -> bool:
        """Whether turns run in this process, and end with it."""
        return self._orders.owns_turns

    @property
    def sees_files(self) -> bool:
        """Whether this process can reach the files of the session; not if a service has them."""
        return self._orders.sees_files

    @property
    def end_reason(self) -> str:
        """The reason why this handle gets no more events; "" while it can get more."""
        return self._orders.end_reason

    @property
    def rejoin_command(self) -> str:
        """The command that joins the session again; "" if its turns run in this process."""
        return self._orders.rejoin_command

    @property
    def has_lease(self) -> bool:
        """Whether this process holds the writer lock, which is taken with the first
        event that it records.
        """
        return self._engine.record.has_lease

    async def release(self) -> None:
        """Release the writer lock, unless something runs. The session stays open."""
        await self._engine.release()

    async def follow(self) -> None:
        """Read the events that another process has recorded, and send them to the watchers."""
        await self._engine.record.follow()

    async def close(self) -> None:
        """Leave the session and end its watchers. It can be resumed.

        If it is open in another process, it stays open there.
        """
        await self._launch.leave(self._engine)

    async def new(self) -> "Session":
        """Close this session, and open a new one in the same directory.

        Raises `BadInput` if this session is open in another process.
        """
        self._check_open_here()
        opened = await self._launch.start()
        await self.close()
        return Session(self._launch, opened, self._approve)

    async def switch(self, target: ResumeTarget, ask: Ask | None = None) -> SwitchResult:
        """Close this session, and open the target in its directory.

        `ask` is called with the question whether a folder is trusted; without `ask`, it is
        not trusted. Raises if the target cannot be opened; then this session stays open.
        """
        self._check_open_here()
        opened = await self._launch.switch(self._engine, target, ask or answer_without_user)
        session = Session(self._launch, opened, self._approve)
        return SwitchResult(session, opened.notices)

    async def fork(self, at: int | None = None) -> str:
        """Copy the session up to event `at`, or all of it.

        Return the id of the copy, which is not opened.

        Raises `BadInput` if the event does not exist, or if sessions are not saved.
        """
        return (await self._order(Fork(at))).copy

    async def rename(self, name: str) -> bool:
        """Name the session; "" removes the name. Raises `BadInput` for an invalid name."""
        return await self.send(Rename(name))

    async def tag(self, changes: Sequence[str]) -> bool:
        """Change the tags of the session: +TAG adds one, -TAG removes one.

        Raises `BadInput` for an invalid tag.
        """
        return await self.send(ChangeTags(tuple(changes)))

    async def set_directory(
        self, directory: str | Path = "", more_directories: Sequence[str | Path] = ()
    ) -> Sequence[str]:
        """Continue in another directory, or with additional directories. "" keeps the
        directory.

        Return notices that the user must see. Raises `BadInput` while a turn runs, and for a
        path that is not a directory. The handle stays the same; watchers must watch again.
        """
        order = SetDirectory(str(directory), tuple(map(str, more_directories)))
        result = await self._order(order)
        return result.opened.notices if result.opened is not None else ()

    # -- Turns

    async def run(self, text: str, images: Sequence[str | Path] = ()) -> "Result":
        """Send a message and run the turn. A failure of the model is an outcome of the result.

        `images` are files for the model to see. Raises `BadInput` if a turn runs already, and
        for a file that is not an image.
        """
        from refold.tools.images import image_file

        image_data = [image_file(Path(name), str(name)) for name in images]
        return await self._run_turn(lambda: self.say(text, images=image_data))

    async def run_woken(self) -> "Result":
        """Run the turns that start when background commands end.

        Return when no command is left that can start a turn, or after ten minutes without an
        event. The method is for a client that runs one task.
        """
        while self.view.commands_to_await:
            with anyio.move_on_after(AWAITED_SECONDS) as patience:
                await self.wait_for_change(after=self.view.seq)
            if patience.cancelled_caught:
                break
            await self._settle_with_answers()
        return self.result

    async def continue_(self) -> "Result":
        """Continue where the last turn ended, or finish a turn that a crash interrupted.

        Raises `BadInput` if a turn runs, or if the session has none yet.
        """

        async def send_order() -> None:
            if self.idle:  # otherwise running the open turn is enough
                await self.send(Continue())

        return await self._run_turn(send_order)

    async def approve_plan(self, text: str = "", mode: ModeAfterPlan = "") -> "Result":
        """Approve the waiting plan, or `text` in its place, and carry it out.

        `mode` is the mode of that turn; "" is the mode before plan mode. Raises `BadInput`
        if no plan waits.
        """
        # Plan 0 is the plan that waits.
        approval = PlanApproval(plan=0, approved=True, text=text, mode=mode)
        return await self._run_turn(lambda: self.send(approval))

    async def reject_plan(self, feedback: str = "") -> "Result":
        """Reject the waiting plan. With `feedback` the model revises it.

        Raises `BadInput` if no plan waits.
        """
        rejection = PlanApproval(plan=0, approved=False, feedback=feedback)
        return await self._run_turn(lambda: self.send(rejection))

    @asynccontextmanager
    async def stream(self, text: str) -> AsyncGenerator[AsyncIterator[Frame], None]:
        """Do what `run` does, and yield every event and piece of text as it arrives.

            async with session.stream("Fix the test.") as frames:
                async for frame in frames:
                    print(frame.item)
            print(session.result.text)

        The frames end with the turn. Leaving the `with` earlier stops the turn.
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
        """Whether no turn runs, and no message waits that would begin one."""
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
        """Carry out the next order.

        Return False if no order waits, or if the turn waits for the user.
        """
        return await self._orders.step()

    async def settle(self) -> None:
        """Run turns until nothing is left to do, or until the user must be asked."""
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
        """Record a message at once, for the running turn or for the next one.

        `typed` is the part that the user wrote, if a template or a pipe added the rest.
        """
        kind = Steer if when == "now" else Queue
        return await self.send(kind(text, tuple(images), typed, client_key=client_key))

    async def steer(self, text: str) -> None:
        """Send a message to the running turn: the model gets it at its next step."""
        await self.send(Steer(text))

    async def queue(self, text: str) -> None:
        """Send a message that begins the next turn, after the running one."""
        await self.send(Queue(text))

    async def record_command(self, command: str, output: str) -> bool:
        """Record a command that the user ran. The model gets it with the next message."""
        return await self.send(ShellOutput(command, output))

    async def edit_message(self, message: int, text: str) -> bool:
        """Change the message with this event number in the conversation."""
        return await self.send(EditMessage(message, text))

    async def delete_message(self, message: int) -> bool:
        """Remove the message with this event number from the conversation."""
        return await self.send(DeleteMessage(message))

    async def withdraw_message(self, message: int) -> bool:
        """Withdraw the message with this event number, which waits for the end of the
        turn.
        """
        return await self.send(WithdrawMessage(message))

    def forget_orders(self) -> None:
        """Drop the messages that wait for a turn of their own."""
        self._orders.forget()

    async def compact(self, focus: str = "", *, prune: bool = False) -> bool:
        """Compact the conversation: now, or before the next step of a running turn.

        Return False if the conversation is empty, or if the compaction was stopped. `focus`
        says what the summary must preserve; with `prune`, only old tool results are
        removed.
        """
        if not self.view.conversation.messages:
            return False
        order = CompactConversation("prune" if prune else "full", focus)
        turn_is_open = self.running or bool(self.view.turn.seq)
        if turn_is_open:
            return await self.send(order)
        return await self._orders.compact(order)

    # -- Orders to a running turn

    async def send(self, order: Order) -> bool:
        """Take an order. Raises `BadInput` for an order that cannot be carried out.

        Return False if the order changes nothing, such as an order to stop a turn when no turn
        runs. A message waits for `settle`, unless it is for the running turn.
        """
        return (await self._order(order)).changed

    async def interrupt(self, instead: str = "", *, reason: str = "interrupted") -> bool:
        """Stop the turn at once; return False if none runs. `instead` is the next message."""
        return await self.send(Interrupt(instead, reason))

    async def cancel(self, reason: str = "cancelled") -> bool:
        """Stop the turn at once, with the outcome "cancelled"; return False if none runs."""
        return await self.send(Cancel(reason))

    async def stop(self, name: str = "") -> bool:
        """Stop a subagent with its own subagents, or a background command.

        "" stops all subagents. Raises `BadInput` if nothing of that name runs.
        """
        is_command = self.view.background.command(name) is not None
        order = StopBackground(name) if is_command else StopChild(name)
        return await self.send(order)

    # -- Requests: calls, questions and plans that wait for the user

    @property
    def requests(self) -> tuple[Request, ...]:
        """The calls, questions and plan that wait for the user, oldest first."""
        return requests(self.view)

    @property
    def questions(self) -> "tuple[Question, ...]":
        """The calls that wait for `answer`."""
        from refold.client.questions import questions

        return questions(self._engine)

    @property
    def plan(self) -> Plan | None:
        """The plan that waits for approval, after the outcome `plan_ready`."""
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

        `request` is the request as it was shown, or the id of a waiting call. `answers` are
        the answers to the questions of the call.

        With `grant` "session" or "always", a rule is added that also allows later calls.
        `rule` is this rule, or a sequence of rules that allow the call only together. Without
        `rule`, the first set of `permissions.rule_sets` is added. `grant` can also be a rule;
        this rule is then added for the session.
        """
        call_id = request if isinstance(request, str) else request.id
        pending = next((item for item in self.requests if item.id == call_id), None)
        if pending is None or isinstance(pending, PlanToJudge):
            return False
        hash_ = pending.call.hash
        if not isinstance(request, str) and request.call.hash != hash_:
            return False  # the call has changed since it was shown
        order: QuestionResponse | ApprovalResponse
        if allowed and isinstance(pending, Questions):
            order = QuestionResponse(call_id, tuple(answers), hash_)
        else:
            one_rule, rule_set = _approval_fields(rule)
            order = ApprovalResponse(
                call_id=call_id,
                allowed=allowed,
                hash=hash_,
                reason=reason,
                grant=grant,
                rule=one_rule,
                rule_set=rule_set,
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
        """Approve or reject a plan, without running the turn that follows.

        Return False if the plan no longer waits. `mode` is the mode after an approval; ""
        is the mode before plan mode.
        """
        try:
            return await self.send(
                PlanApproval(
                    plan=plan, approved=approved, text=text, feedback=feedback, mode=mode
                )
            )
        except AlreadyAnswered:
            return False

    def unmasked_call(self, call: ToolCall) -> ToolCall:
        """Return a call as the model made it.

        The journal masks secrets, but the user who approves must see what will be executed.
        """
        return self._engine.unmasked_call(call)

    def request(self, event: "PersonRequest", seq: int) -> "RequestDocument":
        """Return the document about a request to the user.

        `event` has made the request, and `seq` is the number of this event. An answer without
        a hash refers to the request that was shown last.
        """
        from refold.views.stream_json.encode import approval_request, question

        request = _request_of(event, self.view)
        if request is None:  # it was answered before this could be sent
            return approval_request(event, seq)
        self._shown_hashes[request.id] = event.hash
        if isinstance(request, Questions):
            return question(event, seq, request.questions)
        call = self.unmasked_call(request.call.call)
        permissions = self.permissions
        document = approval_request(event, seq, call, permissions.rule_sets(request))
        return replace(
            document,
            easier_mode=permissions.easier_mode(request) or UNSET,
            conditions=permissions.run_conditions(call) or UNSET,
        )

    async def waiting(self) -> "Sequence[Document]":
        """Return the documents of the requests that wait for the user.

        Each has the number of the event that made the request.
        """
        wanted = {request.id for request in self.requests}
        if not wanted:
            return ()
        from refold.views.stream_json.encode import documents_of

        entries = await self._engine.record.entries()
        newest = dict[str, Entry]()
        for entry in entries:
            id_ = _id_of(entry)
            if id_ in wanted:
                newest[id_] = entry
        waiting: list[Document] = []
        for entry in newest.values():
            frame = Frame(entry.seq, 0, entry)
            documents = documents_of(frame, live=False, make_request=self.request)
            # A plan comes after the result of the call that wrote it.
            waiting.append(list(documents)[-1])
        return waiting

    def show_question(
        self, call_id: str, hash_: str = ""
    ) -> AbstractAsyncContextManager[None]:
        """Run the clock of a question's time limit within the block.

        A client enters the block while it shows the question.
        """
        return self._engine.question_timeout.show_question(call_id, hash_)

    @property
    def question_seconds(self) -> float | None:
        """The seconds for which a question is shown before it is denied; None: without
        limit.
        """
        return self._engine.question_timeout.seconds

    @property
    def timeout_reason(self) -> str:
        """The reason that the journal records if a question timed out and was denied."""
        return NO_ANSWER.format(seconds=self.question_seconds or 0)

    # -- Choices for the next turn

    @property
    def settings(self) -> Settings:
        """The settings that apply in the session's directory."""
        return self._app.settings

    @property
    def model(self) -> str:
        """The model of the next turn, as provider/model; "" if none can be used."""
        # If another process runs the session, its settings decide, and it has sent its model.
        other_process_model = self._orders.model
        if other_process_model:
            return self.view.session.model or other_process_model
        return self._app.model_of(self.view)

    def check_model(self) -> None:
        """Raise `BadInput` if the model of the next turn cannot be used."""
        self._app.models.check(self.model)

    async def set_model(self, model: str) -> bool:
        """Set the model from the next turn on, as provider/model.

        Raises `BadInput` while a turn runs, and for an unknown model.
        """
        return await self.send(SetModel(model))

    @property
    def format(self) -> Format | Literal[""]:
        """The format in which the model gets the conversation as one text.

        "" means that the model gets separate messages, if possible.
        """
        return self.view.session.format or self.settings.backend.format

    async def set_format(self, form: Format) -> bool:
        """Have the model get the conversation as one text in this format, from the next
        turn on.
        """
        return await self.send(SetModel(model="", format=form))

    @property
    def effort(self) -> Effort:
        """How hard the model thinks in the next turn."""
        return self.view.session.effort or self.settings.effort

    async def set_effort(self, effort: Effort) -> bool:
        """Set the effort from the next turn on; "" is the effort of the settings.

        Raises `BadInput` while a turn runs.
        """
        return await self.send(SetEffort(effort))

    @property
    def agent(self) -> str:
        """The agent of the next turn; `main` if the chosen one no longer exists."""
        chosen = self.view.session.agent or self.settings.agent
        try:
            return self._app.agents.find(chosen, "main").name
        except BadInput:
            return "main"

    async def set_agent(self, agent: str) -> bool:
        """Set the agent from the next turn on, by name.

        Raises `BadInput` while a turn runs, and for an unknown name.
        """
        return await self.send(SetAgent(agent))

    async def set_preset(self, preset: str) -> bool:
        """Set the prompt preset of the agent main from the next turn on, by name.

        Raises `BadInput` as `set_agent` does.
        """
        return await self.send(SetAgent(agent="", preset=preset))

    @property
    def mode(self) -> Mode:
        """The permission mode, which applies to the next call."""
        return self.permissions.mode

    async def set_mode(self, mode: Mode) -> bool:
        """Set the permission mode from the next call on."""
        return await self.send(SetMode(mode))

    @property
    def budget(self) -> Budget:
        """The budget of a turn."""
        return budget_of(self.view, budget(self.settings))

    async def set_budget(self, budget: Budget) -> bool:
        """Set the budget of a turn, including the running one."""
        return await self.send(
            SetBudget(budget.dollars, budget.tokens, budget.calls, budget.seconds)
        )

    @property
    def steps(self) -> int:
        """The step limit of a turn, in model responses; 0 means no limit."""
        watched = self._app.options.watched
        return self.view.rights.steps or self.settings.limits.turn_steps(watched=watched)

    async def set_steps(self, steps: int) -> bool:
        """Set the step limit of a turn, in model responses; 0 is the limit of the
        settings.
        """
        return await self.send(SetSteps(steps))

    # -- State and configuration

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
        # A plan is judged with `approve_plan`, not by the id of a request.
        waiting = [
            request.id for request in self.requests if not isinstance(request, PlanToJudge)
        ]
        window = self._app.settings.context.default_window_tokens
        document = status(self.view, choices, waiting, window)
        address = address_of_directory(document.directory)
        return replace(document, address=address, ports=self.workspace.new_ports)

    async def find_changed_instructions(self) -> "ChangedInstructions | None":
        """Return the folder's instructions if they changed since the user trusted them;
        otherwise None.
        """
        from refold.client.changed_instructions import pending_question

        return await anyio.to_thread.run_sync(pending_question, self._app)

    @property
    def snapshot(self) -> "Snapshot":
        """Return the document with the status and the conversation as the model has it
        now.
        """
        from refold.views.stream_json.snapshot import snapshot

        return snapshot(self.view, self.status)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of all agents; `reports.next_tools` has those of the next turn."""
        return self._app.all_tools

    def tool(self, name: str) -> Tool | None:
        """The tool of this name, of any agent; None if no agent has one."""
        return _find_tool(name, self.tools)

    @property
    def mcp(self) -> "McpServers | None":
        """The configured MCP servers; None if none are configured."""
        return self._app.mcp

    @property
    def hooks(self) -> Sequence[tuple[str, str]]:
        """The hooks that apply to the session: what each does, and the file that defines
        it.
        """
        return self._app.hooks.list_hooks if self._app.hooks else ()

    @property
    def shortcuts(self) -> "Shortcuts":
        """The templates and skills behind `/name words`; the client's own commands are
        not among them.
        """
        return self._app.shortcuts(self._launch.commands())

    def notices(self) -> tuple[str, ...]:
        """Return the notices about the start that the user has not seen before."""
        return self._launch.notices(self._app, self._engine)

    def protection_notices(self) -> tuple[str, ...]:
        """Return the notices about this directory: missing protection, and files that are
        not read.

        It tests the sandbox: call it in a thread.
        """
        return self._app.notices()

    # -- Events

    def watch(
        self, limit: float = inf, *, live: float = inf, kinds: tuple[type, ...] = ()
    ) -> Subscription:
        """Subscribe to events and live text, of these `kinds`, or of all.

        The subscription ends when more than `limit` frames wait. If `live` frames or more
        wait, live text is left out.
        """
        return self._engine.hub.watch(limit, live=live, kinds=kinds)

    def on_event(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` synchronously at each event, until the returned function is
        called.
        """
        return self._engine.hub.subscribe(listener)

    async def wait_for_change(self, after: int) -> None:
        """Return once an event after event `after` is recorded."""
        await self._engine.record.wait_for_event(after=after)

    async def events(self, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Yield every event after event `after`: first those in the journal, then each new
        one.
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
        """Return the content to which an event refers by its sha256.

        Raises `JournalError`.
        """
        return await self._engine.record.get(name)

    # -- Groups, each imported when it is first used

    @property
    def permissions(self) -> "Permissions":
        """Rules and modes: which calls are allowed, and why."""

        from refold.client.permissions import Permissions

        return Permissions(self._app, self._engine)

    @property
    def workspace(self) -> SessionWorkspace:
        """The session's files, checkpoints and images."""
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
        """Reports on the session: calls, files, context, cost and time."""

        from refold.client.reports import Reports

        return Reports(self._app, self._engine)

    @property
    def catalogue(self) -> "SessionCatalogue":
        """The stored sessions of the session's directory. Raises `BadInput` if none are
        stored.
        """
        if not self.is_saved:
            raise BadInput(_KEPT_NOWHERE)
        from refold.client.catalogue import SessionCatalogue

        directory = self.view.session.own_directory or self._app.directory
        return SessionCatalogue(self._app.home, directory, self.id)

    @property
    def skills(self) -> "Skills | None":
        """The skills; None if they are off."""
        from refold.client.knowledge import Skills

        if not self.settings.skills:
            return None
        return Skills(self._app)

    @property
    def memory(self) -> "ProjectNotes | None":
        """The notes; None if memory is off, or if no notes are stored."""
        from refold.client.knowledge import ProjectNotes

        if not (self.settings.memory and self.is_saved):
            return None
        return ProjectNotes(self._app, self._engine)

    async def _order(self, order: Order) -> OrderResult:
        """Send an order to the sink, as the acting person, and return its result.

        An answer without a hash gets the hash of the request that was shown last.
        """
        if isinstance(order, ApprovalResponse | QuestionResponse) and not order.hash:
            shown_hash = self._shown_hashes.get(order.call_id, "")
            order = replace(order, hash=shown_hash)
        if person := acting_person():
            order = replace(order, by=person)
        result = await self._orders.send(order)
        if result.opened is not None:  # the session has moved to another directory
            self._app, self._engine = result.opened.app, result.opened.engine
        return result

    def _check_open_here(self) -> None:
        if not self.owns_turns:
            raise BadInput(_OPEN_ELSEWHERE)

    async def _run_turn(self, order: Callable[[], Awaitable[object]]) -> "Result":
        """Await `order`, which begins a turn, and return the result of the turn."""
        with self._exclude_other_turns():
            await order()
            return await self._settle_with_answers()

    @contextmanager
    def _exclude_other_turns(self) -> Generator[None]:
        """Raise `BadInput` if a turn runs; until the end of the `with`, no other can begin."""
        if self._runs_turn or self.running:
            raise BadInput(TURN_IS_RUNNING)
        self._runs_turn = True
        try:
            yield
        finally:
            self._runs_turn = False

    async def _settle_with_answers(self) -> "Result":
        """Run until nothing is left to do, and pass questions to `approve` meanwhile.

        Without `approve`, return at the first question.
        """
        if self._approve is None:
            with _unwrap_error():
                await self.settle()
            return self.result
        from refold.client.questions import answer_all

        with _unwrap_error():
            async with anyio.create_task_group() as group:
                group.start_soon(answer_all, self._engine, self._approve)
                await self.settle()
                while self.questions:  # `answer_all` answers them
                    await self.wait_for_change(after=self.view.seq)
                    await self.settle()
                group.cancel_scope.cancel()
        return self.result


@contextmanager
def _unwrap_error() -> Generator[None]:
    """Raise the error of a failed task, without the exception group around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first(group) from group


def _find_tool(name: str, tools: Sequence[Tool]) -> Tool | None:
    for tool in tools:
        if tool.name == name:
            return tool
    # Imported late: only an agent in a team has them.
    from refold.tools.team import TEAM_TOOLS

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
    """The request that this event makes; None if its call has ended."""
    if isinstance(event, ChildAsked):
        return request_of_child(event)
    open_call = view.conversation.call(event.call_id)
    return None if open_call is None else request_of_call(open_call)


def _approval_fields(rule: str | Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the fields `rule` and `rule_set` of an `ApprovalResponse`; one is empty."""
    return (rule, ()) if isinstance(rule, str) else ("", tuple(rule))
