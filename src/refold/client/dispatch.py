"""The order sink of a session that is open in this process.

`Dispatcher` has one table from the type of an order to the method that carries it out. Most go to
the session's inbox; turns of their own and compactions between two turns wait here for `step`.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from refold.client.order_sink import AlreadyAnswered, OrderResult
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
    WithdrawMessage,
)
from refold.client.workspace import SessionWorkspace, rewind
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import TeamsSwitched, TracingSwitched
from refold.session.pending_requests import Permission, Questions, requests
from refold.session.recorder import acting_as
from refold.tools.contract import ImageData
from refold.values.modes import MODE_NAMES
from refold.values.usage import Budget

if TYPE_CHECKING:
    from refold.app.entered_worktree import SessionWorktree
    from refold.client.permissions import Permissions

# Handles one kind of order. A bool says whether the order changed anything.
OrderHandler: TypeAlias = Callable[[Any], Awaitable[bool | OrderResult]]
TURN_IS_RUNNING = "a turn of this session is running already: wait, or stop it"
NO_CHILD = "no subagent is running"
# What applies to a whole turn cannot be changed within one.
_OF_A_TURN: Mapping[type, str] = MappingProxyType(
    {SetModel: "model", SetEffort: "effort", SetAgent: "agent", SetDirectory: "directory"}
)
_IN_A_TURN = "a turn of this session is running: wait or stop it, and set the {} then"
_MESSAGE_ORDERS = (SendMessage, Steer, Queue)
NO_COMMAND = "no command is running in the background"
NO_BASH = "no command of this session is running that could move to the background"


class Dispatcher:
    """Dispatches the orders of one open session."""

    owns_turns, end_reason, model = True, "", ""

    def __init__(self, launch: Launch, opened: OpenedSession) -> None:
        self._launch, self._app, self._engine = launch, opened.app, opened.engine
        self._keys = set[str]()  # of orders that are no messages; those are in the journal
        self._messages = deque[SendMessage]()
        self._compaction: CompactConversation | None = None
        self._scope: CancelScope | None = None  # of the compaction, while it runs
        self._begins = False
        self._asked = 0  # the seq at which it began to wait for the user
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
        kind = type(order)
        if order.client_key and kind not in _MESSAGE_ORDERS:
            if order.client_key in self._keys:
                return OrderResult(False)
            self._keys.add(order.client_key)
        if kind in _OF_A_TURN and self._engine.running:
            raise BadInput(_IN_A_TURN.format(_OF_A_TURN[kind]))
        with acting_as(order.by):
            result = await self._handlers[kind](order)
        return OrderResult(result) if isinstance(result, bool) else result

    @property
    def waiting(self) -> bool:
        return self._begins or self._compaction is not None or bool(self._messages)

    async def step(self) -> bool:
        """Carry out the next turn, compaction or message."""
        engine = self._engine
        if engine.view.turn.seq and engine.view.seq <= self._asked:
            return False
        if not engine.idle and not engine.leaves_turn():
            self._begins = True  # the only sign of it until its first event is recorded
            try:
                view = await engine.run_turns()
            finally:
                self._begins = False
            self._asked = 0 if engine.leaves_turn() or not view.turn.seq else view.seq
            return True
        if self._compaction is not None:
            order, self._compaction = self._compaction, None
            if engine.view.conversation.compaction is not None:  # no turn has done it
                await self.compact(order)
            return True
        if self._messages:
            message = self._messages.popleft()
            with acting_as(message.by):
                await self._record_message(message, message.when)
            return True
        return False

    async def compact(self, order: CompactConversation) -> bool:
        try:
            with CancelScope() as self._scope, acting_as(order.by):
                return await self._engine.compact(order.kind, order.focus)
        finally:
            self._scope = None
        await self._engine.inbox.withdraw_compaction()
        return False

    def forget(self) -> None:
        """Drop all waiting work, and end a running compaction."""
        self._messages.clear()
        self._compaction = None  # it is recorded, so the next turn compacts
        if self._scope is not None:
            self._scope.cancel()

    async def _send_message(self, order: SendMessage) -> bool:
        if order.when == "now" and self._engine.view.turn.seq:
            return await self._record_message(order, "now")
        _check_text(order)
        self._messages.append(order)
        return True

    async def _record_message(
        self, order: SendMessage | Steer | Queue, when: Literal["now", "next"]
    ) -> bool:
        """Record a message at once. False if it was recorded before."""
        _check_text(order)
        shown = list[ImageData]()
        if order.images:
            from refold.tools.images import image_data  # few messages have one

            shown = [image_data(image.content, image.name) for image in order.images]
        return await self._engine.inbox.say(
            order.text,
            when=when,
            client_key=order.client_key,
            images=shown,
            typed=order.typed,
        )

    async def _edit_message(self, order: EditMessage | DeleteMessage) -> bool:
        text = order.text if isinstance(order, EditMessage) else None
        return await self._engine.inbox.edit_message(order.message, text)

    async def _withdraw_message(self, order: WithdrawMessage) -> bool:
        return await self._engine.inbox.withdraw(order.message)

    async def _rewind(self, order: Rewind) -> OrderResult:
        report = await rewind(self._app, self._engine, order)
        return OrderResult(bool(report.undo), rewound=report)

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
        """Do nothing: clients write the document, by `Session.status` and `snapshot`."""
        return False

    async def _set_directory(self, order: SetDirectory) -> OrderResult:
        names = (order.directory, *order.added)
        directory, *roots = await to_thread.run_sync(real_directories, names)
        target = ResumeTarget(self._engine.view.session.id, directory, tuple(roots))
        opened = await self._launch.switch(self._engine, target, answer_without_user)
        self._app, self._engine = opened.app, opened.engine
        return OrderResult(True, opened=opened)

    async def _judge_instructions(self, order: InstructionsResponse) -> bool:
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
        if await self._stop_compaction():
            return True
        stopped = await self._engine.inbox.interrupt(order.reason, instead=order.instead)
        if not stopped and order.instead:
            await self._engine.inbox.say(order.instead, when="next")
        return stopped

    async def _cancel(self, order: Cancel) -> bool:
        inbox = self._engine.inbox
        return await self._stop_compaction() or await inbox.cancel(order.reason)

    async def _stop_compaction(self) -> bool:
        """Stop a compaction between two turns, or withdraw it. False if there is none."""
        if self._scope is not None:
            self._scope.cancel()
            return True
        waits = self._compaction is not None and self._engine.idle
        self._compaction = None
        return waits and await self._engine.inbox.withdraw_compaction()

    async def _continue(self, _: Continue) -> bool:
        if not self._engine.idle or self._messages:
            raise BadInput("a turn is already running")
        if not self._engine.view.conversation.messages:
            raise BadInput("there is no turn to continue yet")
        if await self._engine.begin_continuation():
            return True
        raise BadInput("a turn is already running")

    async def _compact(self, order: CompactConversation) -> bool:
        if not self._engine.view.conversation.messages:
            raise BadInput("there are no messages to compact")
        is_new = await self._engine.inbox.compact(order.kind, order.focus)
        if is_new and not (self._engine.running or self._engine.view.turn.seq):
            self._compaction = order  # between two turns, `step` carries it out
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
        model = self._app.models.full_name(order.model)
        model = model or (self._engine.view.session.model if order.format else "")
        return await self._engine.inbox.choose_model(model, order.format)

    async def _set_agent(self, order: SetAgent) -> bool:
        agent, view = order.agent, self._engine.view
        if order.preset:
            self._app.system_prompt.preset(order.preset)  # or there is none
            agent = agent or view.session.agent or self._app.settings.agent
        await choose_agent(self._engine.inbox, self._app.agents, agent, order.preset)
        return self._engine.view.seq > view.seq

    async def _answer_permission(self, order: ApprovalResponse) -> bool:
        request = self._find_request(order.call_id, order.hash)
        if isinstance(request, Questions) and order.allowed:
            raise BadInput(f"{order.call_id!r} asks questions: send question_response")
        rules: Sequence[str] = ()
        if order.allowed and order.grant:
            from refold.client.permissions import Permissions

            rules = _rules_to_grant(Permissions(self._app, self._engine), order, request)
        taken = await self._engine.inbox.answer(
            order.call_id, allowed=order.allowed, reason=order.reason, grants=rules,
            hash_=request.call.hash,
        )  # fmt: skip
        if not taken:
            raise AlreadyAnswered(f"the call {order.call_id!r} was answered already")
        if rules and order.grant == "always":  # the call is already allowed
            self._app.workspace.store_allow_rules(*rules)
        return True

    async def _answer_questions(self, order: QuestionResponse) -> bool:
        request = self._find_request(order.call_id, order.hash)
        if not isinstance(request, Questions):
            raise BadInput(
                f"{order.call_id!r} asks no questions: send tool_approval_response"
            )
        answer_count, questions = len(order.answers), len(request.questions)
        if answer_count > questions:
            count_text = "is 1 question" if questions == 1 else f"are {questions} questions"
            raise BadInput(f"there {count_text}, and {answer_count} answers were given")
        taken = await self._engine.inbox.answer(
            order.call_id, allowed=True, answers=order.answers, hash_=request.call.hash
        )
        if not taken:
            raise AlreadyAnswered(f"the questions {order.call_id!r} were answered already")
        return True

    async def _judge_plan(self, order: PlanApproval) -> bool:
        inbox = self._engine.inbox
        if order.approved:
            text, mode = order.text, order.mode or None
            taken = await inbox.approve_plan(order.plan, text=text, mode=mode)
        else:
            taken = await inbox.reject_plan(order.plan, feedback=order.feedback)
        if not taken:
            plan_text = f"no plan {order.plan}" if order.plan else "there is no plan that"
            raise AlreadyAnswered(f"{plan_text} waits to be judged")
        return True

    async def _move_to_background(self, order: MoveToBackground) -> bool:
        background = self._engine.background
        if background is not None and background.move(order.call_id):
            return True
        named = f"the call {order.call_id!r} runs no command"
        raise BadInput(named if order.call_id else NO_BASH)

    async def _stop_child(self, order: StopChild) -> bool:
        if not await self._engine.inbox.stop_child(order.child):
            named = f"no subagent {order.child!r} is running"
            raise BadInput(named if order.child else NO_CHILD)
        return True

    async def _stop_background(self, order: StopBackground) -> bool:
        background = self._engine.background
        running = [command.name for command in self._engine.view.background.running]
        if background is None or not running:
            raise BadInput(NO_COMMAND)
        if order.name and order.name not in running:
            raise BadInput(
                f"no background command {order.name!r} is running; "
                f"running now: {', '.join(running)}"
            )
        for name in (order.name,) if order.name else running:
            await background.stop(name)
        return True

    async def _mail_teammate(self, order: MailTeammate) -> bool:
        """Mail a teammate. False if sent before. Raises `BadInput` for an unknown one."""
        inbox, children = self._engine.inbox, self._engine.view.children
        if not order.text.strip():
            raise BadInput("the message is empty: say what the teammate is to know")
        if await inbox.mail(order.teammate, order.text, order.client_key):
            return True
        team = [child.born.teammate for child in children.team]
        if order.teammate in team:
            return False
        others = (
            f"the teammates are {', '.join(team)}" if team else "there are no teammates"
        )
        raise BadInput(f"no teammate {order.teammate!r} is at work; {others}")

    def _find_request(self, call_id: str, hash_: str) -> Permission | Questions:
        for request in requests(self._engine.view):
            if isinstance(request, Permission | Questions) and request.id == call_id:
                if not hash_:
                    raise BadInput(
                        f"the call {call_id!r} was not shown to you yet: wait for its request"
                    )
                if hash_ != request.call.hash:
                    raise BadInput(
                        f"the call {call_id!r} has changed since the request with that "
                        "hash: answer its newest request"
                    )
                return request
        if hash_:  # it was shown
            raise AlreadyAnswered(f"no call {call_id!r} waits for an answer any more")
        raise BadInput(f"no call {call_id!r} waits for an answer")


def _check_text(order: SendMessage | Steer | Queue) -> None:
    if not (order.text.strip() or order.images):
        raise BadInput("it contains no text")


def _rules_to_grant(
    permissions: "Permissions", order: ApprovalResponse, request: Permission | Questions
) -> Sequence[str]:
    """The rules to grant with this approval: offered ones, or typed ones that allow the call."""
    offered = permissions.rule_sets(request)
    if not (offered or order.rule or order.rule_set):
        raise BadInput(f"no rule can cover {order.call_id!r}: allow it without a grant")
    if order.rule and order.rule_set:
        raise BadInput("send rule or rule_set, not both")
    if order.rule or order.rule_set:
        rules = order.rule_set or (order.rule,)
    else:
        rules = offered[0] if order.grant in ("session", "always") else (order.grant,)
    if rules in offered:
        return rules
    try:
        permissions.check_offer(request, *rules)
    except BadInput as error:
        sets = ", ".join(" with ".join(map(repr, rules)) for rules in offered) or "none"
        raise BadInput(f"{error}; rules for {order.call_id!r}: {sets}") from error
    return rules


async def _wait_for(work: Awaitable[object]) -> bool:
    """Wait for `work`. Raises `BadInput` with the text of a `ToolFailed`."""
    try:
        await work
    except ToolFailed as error:
        raise BadInput(str(error)) from error
    return True
