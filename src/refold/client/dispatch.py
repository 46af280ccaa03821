"""Carries out orders to a session that is open in this process.

`Dispatcher` has a table from the type of an order to the function that carries it out. Most
orders are passed to the session's inbox. Messages and compactions between two turns wait
here for `step`. Answers to the session are in `request_answers`, orders to what runs in the
background in `background_orders`.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from anyio import CancelScope, to_thread

from refold.agents.registry import choose_agent
from refold.client.launch import (
    Launch,
    OpenedSession,
    ResumeTarget,
    answer_without_user,
    real_directories,
)
from refold.client.order_sink import OrderResult
from refold.client.protocol import (
    ApprovalResponse,
    Cancel,
    ChangeTags,
    CompactConversation,
    Continue,
    DeleteMessage,
    EditMessage,
    EnterWorktree,
    Fork,
    InstructionsResponse,
    Interrupt,
    LeaveWorktree,
    MailTeammate,
    MoveToBackground,
    Order,
    PlanApproval,
    QuestionResponse,
    Queue,
    RemoveWorktree,
    Rename,
    ReportSnapshot,
    ReportStatus,
    Rewind,
    SendMessage,
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
    SwitchTeams,
    SwitchTracing,
    UploadFile,
    WithdrawMessage,
)
from refold.client.workspace import SessionWorkspace, rewind, upload
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import TeamsSwitched, TracingSwitched
from refold.session.recorder import acting_as
from refold.tools.contract import ImageData
from refold.values.modes import MODE_NAMES
from refold.values.usage import Budget

if TYPE_CHECKING:
    from refold.app.entered_worktree import SessionWorktree

# Carries out one kind of order. A returned bool says whether the order changed anything.
OrderHandler: TypeAlias = Callable[[Any], Awaitable[bool | OrderResult]]
TURN_IS_RUNNING = "a turn of this session is running already: wait, or stop it"
# These orders apply to a whole turn, so they are refused while one runs. Each has the word for
# the error.
_BETWEEN_TURNS: Mapping[type, str] = MappingProxyType(
    {SetModel: "model", SetEffort: "effort", SetAgent: "agent", SetDirectory: "directory"}
)
_TURN_RUNS = "a turn of this session is running: wait or stop it, and set the {} then"
_MESSAGE_ORDERS = (SendMessage, Steer, Queue)


class Dispatcher:
    """The order sink of a session that is open in this process: carries out each order."""

    owns_turns = True
    sees_files = True
    end_reason = ""
    model = ""
    rejoin_command = ""

    def __init__(self, launch: Launch, opened: OpenedSession) -> None:
        self._launch = launch
        self._app = opened.app
        self._engine = opened.engine
        # The client keys of orders that are not messages. The journal has the keys of messages.
        self._order_keys = set[str]()
        self._messages = deque[SendMessage]()
        self._compaction: CompactConversation | None = None
        self._compaction_scope: CancelScope | None = None  # while a compaction runs
        self._runs_turns = False
        self._asked_seq = 0  # the last event before the turn began to wait for the user
        self._handlers: Mapping[type[Order], OrderHandler] = {
            SendMessage: self._send_message,
            Steer: partial(self._record_message, when="now"),
            Queue: partial(self._record_message, when="next"),
            Interrupt: self._interrupt,
            Cancel: self._cancel,
            Continue: self._continue,
            ApprovalResponse: self._answer_permission,
            QuestionResponse: self._answer_questions,
            PlanApproval: self._judge_plan,
            CompactConversation: self._compact,
            EditMessage: self._edit_message,
            DeleteMessage: self._edit_message,
            WithdrawMessage: self._withdraw_message,
            Rewind: self._rewind,
            Fork: self._fork,
            Rename: self._rename,
            ChangeTags: self._change_tags,
            ShellOutput: self._shell_output,
            UploadFile: self._upload,
            ReportStatus: self._report,
            ReportSnapshot: self._report,
            SetDirectory: self._set_directory,
            InstructionsResponse: self._judge_instructions,
            EnterWorktree: self._enter_worktree,
            LeaveWorktree: self._leave_worktree,
            RemoveWorktree: self._remove_worktree,
            MoveToBackground: self._move_to_background,
            StopBackground: self._stop_background,
            StopChild: self._stop_child,
            MailTeammate: self._mail_teammate,
            SetMode: self._set_mode,
            SetModel: self._set_model,
            SetEffort: self._set_effort,
            SetAgent: self._set_agent,
            SetBudget: self._set_budget,
            SetSteps: self._set_steps,
            SwitchTeams: self._switch,
            SwitchTracing: self._switch,
        }

    async def send(self, order: Order) -> OrderResult:
        """Carry out an order, and return its result.

        An order whose client key came before is not carried out again: its result says that
        nothing changed.
        """
        kind = type(order)
        if order.client_key and kind not in _MESSAGE_ORDERS:
            if order.client_key in self._order_keys:
                return OrderResult(False)
            self._order_keys.add(order.client_key)
        try:
            if kind in _BETWEEN_TURNS and self._engine.running:
                raise BadInput(_TURN_RUNS.format(_BETWEEN_TURNS[kind]))
            with acting_as(order.by):
                result = await self._handlers[kind](order)
        except BadInput:  # nothing was done: the same order is refused again
            self._order_keys.discard(order.client_key)
            raise
        return OrderResult(result) if isinstance(result, bool) else result

    @property
    def waiting(self) -> bool:
        """Whether a turn runs, or a compaction or message waits for `step`."""
        return self._runs_turns or self._compaction is not None or bool(self._messages)

    async def step(self) -> bool:
        """Carry out one waiting turn, compaction or message.

        Return False if nothing waits, or if the turn waits for the user.
        """
        engine = self._engine
        turn_is_open = bool(engine.view.turn.seq)
        has_new_event = engine.view.seq > self._asked_seq
        if turn_is_open and not has_new_event:  # it still waits for the user
            return False
        if not engine.idle and not engine.leaves_turn():
            await self._run_turns()
            return True
        if self._compaction is not None:
            order, self._compaction = self._compaction, None
            # A turn that ran meanwhile may have compacted the conversation already.
            if engine.view.conversation.compaction is not None:
                await self.compact(order)
            return True
        if self._messages:
            message = self._messages.popleft()
            with acting_as(message.by):
                await self._record_message(message, message.when)
            return True
        return False

    async def _run_turns(self) -> None:
        """Run turns until none is left, or until one waits for the user."""
        engine = self._engine
        # Until the first event of the turn is recorded, nothing else shows that it runs.
        self._runs_turns = True
        try:
            view = await engine.run_turns()
        finally:
            self._runs_turns = False
        waits_for_user = view.turn.seq and not engine.leaves_turn()
        self._asked_seq = view.seq if waits_for_user else 0

    async def compact(self, order: CompactConversation) -> bool:
        """Compact the conversation.

        Return False if the compaction was stopped, or if nothing can be compacted.
        """
        try:
            with CancelScope() as self._compaction_scope, acting_as(order.by):
                return await self._engine.compact(order.kind, order.focus)
        finally:
            self._compaction_scope = None
        # `forget` or `_stop_compaction` has cancelled the scope.
        await self._engine.inbox.withdraw_compaction()
        return False

    def forget(self) -> None:
        """Drop the messages that wait for `step`, and stop a running compaction."""
        self._messages.clear()
        self._compaction = None  # the order is in the journal, so the next turn compacts
        if self._compaction_scope is not None:
            self._compaction_scope.cancel()

    async def _send_message(self, order: SendMessage) -> bool:
        """Keep the message for `step`; if it is for the running turn, record it at once.

        Return False if it was recorded before. Raises `BadInput` if it is empty.
        """
        turn_is_open = bool(self._engine.view.turn.seq)
        if order.when == "now" and turn_is_open:
            return await self._record_message(order, "now")
        _check_text(order)
        self._messages.append(order)
        return True

    async def _record_message(
        self, order: SendMessage | Steer | Queue, when: Literal["now", "next"]
    ) -> bool:
        """Record a message at once, for the running turn ("now") or the next one ("next").

        Return False if it was recorded before.
        """
        _check_text(order)
        images = list[ImageData]()
        if order.images:
            # Imported late: most messages have no image.
            from refold.tools.images import image_data

            # Raises `BadInput` for content that is not an image.
            images = [image_data(image.content, image.name) for image in order.images]
        return await self._engine.inbox.say(
            order.text,
            when=when,
            client_key=order.client_key,
            images=images,
            typed=order.typed,
        )

    async def _answer_permission(self, order: ApprovalResponse) -> bool:
        from refold.client.request_answers import answer_permission

        return await answer_permission(self._app, self._engine, order)

    async def _answer_questions(self, order: QuestionResponse) -> bool:
        from refold.client.request_answers import answer_questions

        return await answer_questions(self._engine, order)

    async def _judge_plan(self, order: PlanApproval) -> bool:
        from refold.client.request_answers import judge_plan

        return await judge_plan(self._engine, order)

    async def _move_to_background(self, order: MoveToBackground) -> bool:
        from refold.client.background_orders import move_to_background

        return await move_to_background(self._engine, order)

    async def _stop_background(self, order: StopBackground) -> bool:
        from refold.client.background_orders import stop_background

        return await stop_background(self._engine, order)

    async def _stop_child(self, order: StopChild) -> bool:
        from refold.client.background_orders import stop_child

        return await stop_child(self._engine, order)

    async def _mail_teammate(self, order: MailTeammate) -> bool:
        from refold.client.background_orders import mail_teammate

        return await mail_teammate(self._engine, order)

    async def _edit_message(self, order: EditMessage | DeleteMessage) -> bool:
        text = order.text if isinstance(order, EditMessage) else None
        return await self._engine.inbox.edit_message(order.message, text)

    async def _withdraw_message(self, order: WithdrawMessage) -> bool:
        return await self._engine.inbox.withdraw(order.message)

    async def _rewind(self, order: Rewind) -> OrderResult:
        report = await rewind(self._app, self._engine, order)
        return OrderResult(bool(report.undo), rewound=report)

    async def _upload(self, order: UploadFile) -> OrderResult:
        return OrderResult(True, uploaded=await upload(self._app, self._engine, order))

    async def _fork(self, order: Fork) -> OrderResult:
        copy = await self._app.fork(self._engine.view.session.id, order.at)
        return OrderResult(True, copy=copy.id)

    async def _rename(self, order: Rename) -> bool:
        from refold.session.rename import rename

        return await rename(self._engine.record, order.name)

    async def _change_tags(self, order: ChangeTags) -> bool:
        from refold.session.rename import tag

        return await tag(self._engine.record, order.changes)

    async def _shell_output(self, order: ShellOutput) -> bool:
        return await self._engine.inbox.record_command(order.command, order.output)

    async def _report(self, _: ReportStatus | ReportSnapshot) -> bool:
        """Do nothing: clients make the document themselves from `Session.status` or
        `snapshot`.
        """
        return False

    async def _set_directory(self, order: SetDirectory) -> OrderResult:
        """Open the session in the directory of the order; the result has what was opened."""
        names = (order.directory, *order.added)
        directory, *roots = await to_thread.run_sync(real_directories, names)
        target = ResumeTarget(self._engine.view.session.id, directory, tuple(roots))
        opened = await self._launch.switch(self._engine, target, answer_without_user)
        self._app, self._engine = opened.app, opened.engine
        return OrderResult(True, opened=opened)

    async def _judge_instructions(self, order: InstructionsResponse) -> bool:
        """Record the user's answer about changed instructions. Return True."""
        from refold.client.changed_instructions import record_answer

        await to_thread.run_sync(record_answer, self._app, order)
        return True

    async def _enter_worktree(self, order: EnterWorktree) -> bool:
        return await _wait_for(self._worktree.enter_now(order.name, order.branch))

    async def _leave_worktree(self, _: LeaveWorktree) -> bool:
        return await _wait_for(self._worktree.leave_now())

    async def _remove_worktree(self, order: RemoveWorktree) -> bool:
        return await _wait_for(self._worktree.remove(order.name, force=order.force))

    @property
    def _worktree(self) -> "SessionWorktree":
        return SessionWorkspace(self._app, self._engine, self.send).worktree

    async def _interrupt(self, order: Interrupt) -> bool:
        """Stop the compaction; if none runs, stop the turn. Return False if neither runs.

        After a stopped turn, or without one, `instead` is the next message to the model.
        """
        inbox = self._engine.inbox
        stopped_compaction = await self._stop_compaction()
        if not stopped_compaction and await inbox.interrupt(
            order.reason, instead=order.instead
        ):
            return True
        if order.instead:  # no turn was stopped: the text begins the next one
            await inbox.say(order.instead, when="next")
        return stopped_compaction

    async def _cancel(self, order: Cancel) -> bool:
        inbox = self._engine.inbox
        return await self._stop_compaction() or await inbox.cancel(order.reason)

    async def _stop_compaction(self) -> bool:
        """Stop a compaction between two turns, or withdraw it if it has not begun.

        Return False if none was requested.
        """
        if self._compaction_scope is not None:
            self._compaction_scope.cancel()
            return True
        # If a turn is open or about to begin, it carries the compaction out.
        is_waiting = self._compaction is not None and self._engine.idle
        self._compaction = None
        if not is_waiting:
            return False
        return await self._engine.inbox.withdraw_compaction()

    async def _continue(self, _: Continue) -> bool:
        """Continue the conversation without a new message. Return True.

        Raises `BadInput` if a turn is running, if waiting messages will begin a turn, or if
        the conversation is empty.
        """
        if not self._engine.idle or self._messages:
            raise BadInput("a turn is already running")
        if not self._engine.view.conversation.messages:
            raise BadInput("there is no turn to continue yet")
        has_begun = await self._engine.begin_continuation()
        if not has_begun:  # another turn has begun meanwhile
            raise BadInput("a turn is already running")
        return True

    async def _compact(self, order: CompactConversation) -> bool:
        """Request a compaction. Return False if it was requested already."""
        if not self._engine.view.conversation.messages:
            raise BadInput("there are no messages to compact")
        is_new = await self._engine.inbox.compact(order.kind, order.focus)
        turn_is_open = self._engine.running or bool(self._engine.view.turn.seq)
        if is_new and not turn_is_open:
            self._compaction = order  # `step` carries it out between two turns
        return is_new

    async def _set_mode(self, order: SetMode) -> bool:
        if (mode := MODE_NAMES.get(order.mode)) is None:
            raise BadInput(f"{order.mode!r} is not a mode: {', '.join(MODE_NAMES)}")
        return await self._engine.inbox.set_mode(mode)

    async def _set_budget(self, order: SetBudget) -> bool:
        budget = Budget(order.dollars, order.tokens, order.calls, order.seconds)
        return await self._engine.inbox.set_budget(budget)

    async def _set_steps(self, order: SetSteps) -> bool:
        return await self._engine.inbox.set_steps(order.steps)

    async def _set_effort(self, order: SetEffort) -> bool:
        return await self._engine.inbox.choose_effort(order.effort)

    async def _switch(self, order: SwitchTeams | SwitchTracing) -> bool:
        event = TeamsSwitched if isinstance(order, SwitchTeams) else TracingSwitched
        return await self._engine.inbox.switch(event(order.on))

    async def _set_model(self, order: SetModel) -> bool:
        """Set the model and the format of requests; with a format alone, the model stays.

        Return False if nothing changes.
        """
        model = self._app.models.full_name(order.model)
        if not model and order.format:  # only the format is set
            model = self._engine.view.session.model
        return await self._engine.inbox.choose_model(model, order.format)

    async def _set_agent(self, order: SetAgent) -> bool:
        """Set the agent, with a preset of the system prompt if one is given.

        Return whether an event was recorded.
        """
        agent = order.agent
        before = self._engine.view
        if order.preset:
            # Raises if the preset does not exist.
            self._app.system_prompt.preset(order.preset)
            agent = agent or before.session.agent or self._app.settings.agent
        await choose_agent(self._engine.inbox, self._app.agents, agent, order.preset)
        return self._engine.view.seq > before.seq


def _check_text(order: SendMessage | Steer | Queue) -> None:
    if not (order.text.strip() or order.images):
        raise BadInput("it contains no text")


async def _wait_for(work: Awaitable[object]) -> bool:
    """Wait for `work`, and return True. Raises `BadInput` in place of `ToolFailed`."""
    try:
        await work
    except ToolFailed as error:
        raise BadInput(str(error)) from error
    return True
