"""Takes orders: each becomes an event of the session, or waits until the session is idle.

Most orders go to the session's inbox at once. Messages that are turns of their own, a
compaction between two turns and `continue` wait here, and `step` carries out the next of
them. An order that cannot be carried out raises `BadInput`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from anyio import CancelScope

from refold.agents.registry import choose_agent
from refold.app.app import App
from refold.client.protocol import (
    ApprovalResponse,
    Cancel,
    CompactConversation,
    Continue,
    DeleteMessage,
    EditMessage,
    EnterWorktree,
    Interrupt,
    LeaveWorktree,
    MailTeammate,
    MoveToBackground,
    PlanApproval,
    QuestionResponse,
    Queue,
    RemoveWorktree,
    Rewind,
    SendMessage,
    SetAgent,
    SetBudget,
    SetEffort,
    SetMode,
    SetModel,
    SetSteps,
    Steer,
    StopBackground,
    StopChild,
    SwitchTeams,
    SwitchTracing,
    WithdrawMessage,
)
from refold.client.workspace import SessionWorkspace
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import TeamsSwitched, TracingSwitched
from refold.session.pending_requests import Permission, Questions, requests
from refold.session.session import Session as Engine
from refold.tools.contract import ImageData
from refold.values.modes import MODES
from refold.values.usage import Budget

if TYPE_CHECKING:
    from refold.client.permissions import Permissions

_Set: TypeAlias = (
    SetMode
    | SetModel
    | SetEffort
    | SetAgent
    | SwitchTeams
    | SwitchTracing
    | SetBudget
    | SetSteps
)
_OfWorktree: TypeAlias = EnterWorktree | LeaveWorktree | RemoveWorktree
_Change: TypeAlias = EditMessage | DeleteMessage | WithdrawMessage | Rewind | _OfWorktree
_Beside: TypeAlias = StopChild | MoveToBackground | StopBackground | MailTeammate
_Control: TypeAlias = Interrupt | Cancel | Continue | _Beside
# `Session` takes the others: they lead to another place, or to another session.
SessionOrder: TypeAlias = (
    SendMessage | Steer | Queue | ApprovalResponse | QuestionResponse | PlanApproval
    | CompactConversation | _Control | _Change | _Set
)  # fmt: skip
BUSY = "a turn of this session is running already: wait, or stop it"
NO_CHILD = "no subagent is running"
# What a whole turn has: it cannot be changed within one.
_OF_A_TURN: Mapping[type, str] = MappingProxyType(
    {SetModel: "model", SetEffort: "effort", SetAgent: "agent"}
)
NO_COMMAND = "no command is running in the background"
NO_BASH = "no command of this session is running that could go on in the background"


def check_between_turns(engine: Engine, what: str) -> None:
    """Raises `BadInput` while a turn runs, if `what` is something that a whole turn has."""
    if what and engine.running:
        raise BadInput(
            f"a turn of this session is running: wait or stop it, and set the {what} then"
        )


class AlreadyAnswered(BadInput):
    """Another client answered first. `Session.answer` returns False then."""


class Dispatcher:
    """Dispatches the orders of one open session.

    `told` has the hash with which each request was last shown.
    """

    def __init__(self, app: App, engine: Engine) -> None:
        self._app, self._engine = app, engine
        self.told = dict[str, str]()
        self._messages = deque[SendMessage]()
        self._compaction: CompactConversation | None = None
        self._scope: CancelScope | None = None  # of the compaction, while it is done
        self._continues = False
        self._asked = 0  # the seq at which the turn began to wait for a person

    async def send(self, order: SessionOrder) -> bool:
        """Take the order. False if it changes nothing. Raises `BadInput`."""
        match order:
            case SendMessage() | Steer() | Queue():
                return await self._message(order)
            case (
                EditMessage() | DeleteMessage() | WithdrawMessage() | Rewind()
                | EnterWorktree() | LeaveWorktree() | RemoveWorktree()
            ):  # fmt: skip
                return await self._change(order)
            case ApprovalResponse():
                return await self._approval(order)
            case QuestionResponse():
                return await self._answers(order)
            case PlanApproval():
                return await self._plan(order)
            case (
                Interrupt() | Cancel() | Continue() | StopChild() | MoveToBackground()
                | StopBackground() | MailTeammate()
            ):  # fmt: skip
                return await self._control(order)
            case CompactConversation():
                return await self._compact(order)
            case _:
                check_between_turns(self._engine, _OF_A_TURN.get(type(order), ""))
                return await self._set(order)

    @property
    def waiting(self) -> bool:
        """Does an order wait for `step` that is no event yet?"""
        return self._continues or self._compaction is not None or bool(self._messages)

    async def step(self) -> bool:
        """Do the next thing: a turn, a compaction, a message. False if there is none.

        False, too, while a turn waits for the user, who has not answered since.
        """
        engine = self._engine
        if engine.view.turn.seq and engine.view.seq <= self._asked:
            return False
        if self._continues or not engine.idle:
            go = engine.continue_ if self._continues else engine.go
            self._continues = False
            view = await go()
            self._asked = view.seq if view.turn.seq else 0
            return True
        if self._compaction is not None:
            order, self._compaction = self._compaction, None
            try:
                with CancelScope() as self._scope:
                    await engine.compact(order.kind, order.focus)
            finally:
                self._scope = None
            return True
        if self._messages:
            message = self._messages.popleft()
            await self.say(message, message.when)
            return True
        return False

    async def say(self, order: SendMessage, when: Literal["now", "next"]) -> bool:
        """Record a message at once. False if that was done before."""
        shown = list[ImageData]()
        if order.images:
            from refold.tools.images import image_data  # few messages have one

            shown = [image_data(each.content, each.name) for each in order.images]
        return await self._engine.inbox.say(
            order.text,
            when=when,
            client_key=order.client_key,
            images=shown,
            typed=order.typed,
        )

    def forget(self) -> None:
        """Drop all waiting work, and end a running compaction."""
        self._messages.clear()
        self._compaction, self._continues = None, False
        if self._scope is not None:
            self._scope.cancel()

    async def _message(self, order: SendMessage | Steer | Queue) -> bool:
        images = order.images if isinstance(order, SendMessage) else ()
        if not (order.text.strip() or images):
            raise BadInput("it contains no text")
        match order:
            case Steer(text):
                message = SendMessage(text, when="now", client_key=order.client_key)
                return await self.say(message, "now")
            case Queue(text):
                message = SendMessage(text, when="next", client_key=order.client_key)
                return await self.say(message, "next")
            case SendMessage(when="now") if self._engine.view.turn.seq:
                return await self.say(order, "now")
            case _:
                self._messages.append(order)
                return True

    async def _change(self, order: _Change) -> bool:
        inbox = self._engine.inbox
        match order:
            case EditMessage(message, text):
                return await inbox.edit_message(message, text)
            case DeleteMessage(message):
                return await inbox.edit_message(message, None)
            case WithdrawMessage(message):
                return await inbox.withdraw(message)
            case Rewind(seq, what, force):
                workspace = SessionWorkspace(self._app, self._engine)
                return bool((await workspace.rewind(seq, what, force=force)).undo)
            case _:
                return await _enter_or_leave(order, self._app, self._engine)

    async def _control(self, order: _Control) -> bool:
        inbox, view = self._engine.inbox, self._engine.view
        match order:
            case Interrupt() | Cancel() if self._scope is not None:
                self._scope.cancel()
                return True
            case Interrupt(instead, reason):
                stopped = await inbox.interrupt(reason, instead=instead)
                if not stopped and instead:
                    await inbox.say(instead, when="next")
                return stopped
            case Cancel(reason):
                return await inbox.cancel(reason)
            case Continue():
                if not self._engine.idle or self._messages:
                    raise BadInput("a turn is already running")
                if not view.conversation.messages:
                    raise BadInput("there is no turn to continue yet")
                self._continues = True
                return True
            case _:
                return await _beside(order, self._engine)

    async def _compact(self, order: CompactConversation) -> bool:
        if not self._engine.view.conversation.messages:
            raise BadInput("there are no messages to compact")
        if self._engine.view.turn.seq:
            return await self._engine.inbox.compact(order.kind, order.focus)
        self._compaction = order  # between two turns: `step` does it
        return True

    async def _set(self, order: _Set) -> bool:
        inbox = self._engine.inbox
        match order:
            case SetMode(mode):
                if (found := MODES.get(mode)) is None:
                    raise BadInput(f"{mode!r} is not a mode: {', '.join(MODES)}")
                return await inbox.set_mode(found)
            case SetBudget(dollars, tokens, calls, seconds):
                return await inbox.set_budget(Budget(dollars, tokens, calls, seconds))
            case SetSteps(steps):
                return await inbox.set_steps(steps)
            case SetModel():
                return await self._set_model(order)
            case SetEffort(effort):
                return await inbox.choose_effort(effort)
            case SwitchTeams(on):
                return await inbox.switch(TeamsSwitched(on))
            case SwitchTracing(on):
                return await inbox.switch(TracingSwitched(on))
            case SetAgent():
                return await self._set_agent(order)

    async def _set_model(self, order: SetModel) -> bool:
        model = self._app.models.full(order.model)
        if order.format and not model:
            model = self._engine.view.session.model
        return await self._engine.inbox.choose_model(model, order.format)

    async def _set_agent(self, order: SetAgent) -> bool:
        agent, before = order.agent, self._engine.view.seq
        if order.preset:
            self._app.system_prompt.preset(order.preset)  # or there is none
            agent = agent or self._engine.view.session.agent or self._app.settings.agent
        await choose_agent(self._engine.inbox, self._app.agents, agent, order.preset)
        return self._engine.view.seq > before

    async def _approval(self, order: ApprovalResponse) -> bool:
        found = self._waiting(order.call_id, order.hash)
        if isinstance(found, Questions) and order.allowed:
            raise BadInput(f"{order.call_id!r} asks questions: send question_response")
        rules: Sequence[str] = ()
        if order.allowed and order.grant:
            from refold.client.permissions import Permissions

            rules = _granted(Permissions(self._app, self._engine), order, found)
        taken = await self._engine.inbox.answer(
            order.call_id,
            allowed=order.allowed,
            reason=order.reason,
            grants=rules,
            hash_=found.call.hash,
        )
        if not taken:
            raise AlreadyAnswered(f"the call {order.call_id!r} was answered already")
        if rules and order.grant == "always":  # the yes has counted by now
            self._app.workspace.always(*rules)
        return True

    async def _answers(self, order: QuestionResponse) -> bool:
        found = self._waiting(order.call_id, order.hash)
        if not isinstance(found, Questions):
            raise BadInput(
                f"{order.call_id!r} asks no questions: send tool_approval_response"
            )
        given, questions = len(order.answers), len(found.questions)
        if given > questions:
            there = "is 1 question" if questions == 1 else f"are {questions} questions"
            raise BadInput(f"there {there}, and {given} answers were given")
        taken = await self._engine.inbox.answer(
            order.call_id, allowed=True, answers=order.answers, hash_=found.call.hash
        )
        if not taken:
            raise AlreadyAnswered(f"the questions {order.call_id!r} were answered already")
        return True

    async def _plan(self, order: PlanApproval) -> bool:
        inbox = self._engine.inbox
        if order.approved:
            taken = await inbox.approve_plan(
                order.plan, text=order.text, mode=order.mode or None
            )
        else:
            taken = await inbox.reject_plan(order.plan, feedback=order.feedback)
        if not taken:
            which = f"no plan {order.plan}" if order.plan else "there is no plan that"
            raise AlreadyAnswered(f"{which} waits to be judged")
        return True

    def _waiting(self, call_id: str, hash_: str) -> Permission | Questions:
        for found in requests(self._engine.view):
            if isinstance(found, Permission | Questions) and found.id == call_id:
                # Whoever gives no hash answers what they were shown last.
                known = hash_ or self.told.get(call_id, "")
                if not known:
                    raise BadInput(
                        f"the call {call_id!r} was not shown to you yet: wait for its request"
                    )
                if known != found.call.hash:
                    raise BadInput(
                        f"the call {call_id!r} has changed since the request with that "
                        "hash: answer its newest request"
                    )
                return found
        if call_id in self.told:
            raise AlreadyAnswered(f"no call {call_id!r} waits for an answer any more")
        raise BadInput(f"no call {call_id!r} waits for an answer")


def _granted(
    permissions: "Permissions", order: ApprovalResponse, found: Permission | Questions
) -> Sequence[str]:
    """The rules that go with this yes: some that were offered, or that cover the call."""
    offered = permissions.rule_sets(found)
    if not offered:
        raise BadInput(f"no rule can cover {order.call_id!r}: allow it without a grant")
    kinds = ("session", "always")
    if order.rule and order.rule_set:
        raise BadInput("send rule or rule_set, not both")
    if order.rule or order.rule_set:
        rules = order.rule_set or (order.rule,)
    else:
        rules = offered[0] if order.grant in kinds else (order.grant,)
    if rules in offered:
        return rules
    try:
        permissions.check_offer(found, *rules)
    except BadInput as error:
        sets = ", ".join(" with ".join(map(repr, one)) for one in offered)
        raise BadInput(f"{error}; rules for {order.call_id!r}: {sets}") from error
    return rules


async def _enter_or_leave(order: _OfWorktree, app: App, engine: Engine) -> bool:
    worktree = SessionWorkspace(app, engine).worktree
    try:
        match order:
            case EnterWorktree(name, branch):
                await worktree.enter_now(name, branch)
            case LeaveWorktree():
                await worktree.leave_now()
            case RemoveWorktree(name, force):
                await worktree.remove(name, force=force)
    except ToolFailed as error:
        raise BadInput(str(error)) from error
    return True


async def _mail(order: MailTeammate, engine: Engine) -> bool:
    """Send it. False: it was sent before. Raises `BadInput` where no such teammate works."""
    if not order.text.strip():
        raise BadInput("the message is empty: say what the teammate is to know")
    if await engine.inbox.mail(order.teammate, order.text, order.client_key):
        return True
    there = [each.born.teammate for each in engine.view.children.team]
    if order.teammate in there:
        return False
    others = f"the teammates are {', '.join(there)}" if there else "there are no teammates"
    raise BadInput(f"no teammate {order.teammate!r} is at work; {others}")


async def _beside(order: _Beside, engine: Engine) -> bool:
    """About what works beside the conversation, or is to."""
    match order:
        case MoveToBackground(call_id):
            return _move(call_id, engine)
        case MailTeammate():
            return await _mail(order, engine)
        case StopChild() | StopBackground():
            return await _stop_work(order, engine)


def _move(call_id: str, engine: Engine) -> bool:
    """Raises `BadInput` where no such command runs."""
    if engine.background is not None and engine.background.move(call_id):
        return True
    raise BadInput(f"the call {call_id!r} runs no command" if call_id else NO_BASH)


async def _stop_work(order: StopChild | StopBackground, engine: Engine) -> bool:
    """Stop what works beside the conversation."""
    if isinstance(order, StopChild):
        if not await engine.inbox.stop_child(order.child):
            raise BadInput(
                f"no subagent {order.child!r} is running" if order.child else NO_CHILD
            )
        return True
    running = [each.name for each in engine.view.background.running]
    if engine.background is None or not running:
        raise BadInput(NO_COMMAND)
    if order.name and order.name not in running:
        there = ", ".join(running)
        raise BadInput(
            f"no background command {order.name!r} is running; running now: {there}"
        )
    for each in (order.name,) if order.name else running:
        await engine.background.stop(each)
    return True
