"""Orders to a session, as values and as methods: each method is a call of `send`.

`client.protocol` defines the orders, `client.dispatch` carries them out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio

from refold.client.dispatch import AlreadyAnswered, Dispatcher, check_between_turns
from refold.client.launch import (
    Launch,
    OpenedSession,
    ResumeTarget,
    real_directories,
    untrusted,
)
from refold.client.protocol import (
    ApprovalResponse,
    Cancel,
    ChangeTags,
    DeleteMessage,
    EditMessage,
    Fork,
    InstructionsResponse,
    Interrupt,
    ModeAfterPlan,
    Order,
    PlanApproval,
    QuestionResponse,
    Queue,
    Rename,
    ReportSnapshot,
    ReportStatus,
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
    WithdrawMessage,
)
from refold.client.session_state import SessionState
from refold.journal.events.child_events import ChildAsked
from refold.journal.events.kinds import Ended, Entry, Frame, Judged
from refold.journal.state.fold import View
from refold.session.pending_requests import (
    Permission,
    PlanToJudge,
    Questions,
    of_call,
    of_child,
    plan_id,
)
from refold.tools.contract import ImageData
from refold.values.control import PlanReady
from refold.values.modes import Effort, Mode
from refold.values.usage import Budget

if TYPE_CHECKING:
    from refold.views.stream_json.encode import Document, PutToPerson, Request


class SessionOrders(SessionState):
    """The part of `Session` that orders."""

    def __init__(self, launch: Launch, opened: OpenedSession) -> None:
        super().__init__(launch, opened)
        self._orders = Dispatcher(opened.app, opened.engine)
        self._keys = set[str]()  # of orders that are no messages; those are in the journal

    async def send(self, order: Order) -> bool:
        """Take an order. False if it changes nothing: it is so already, or nothing runs.

        Raises `BadInput` for one that cannot be obeyed. A message waits for `settle`,
        unless it is for the turn that runs.
        """
        if order.client_key and not isinstance(order, SendMessage | Steer | Queue):
            if order.client_key in self._keys:
                return False
            self._keys.add(order.client_key)
        match order:
            case SetDirectory() | InstructionsResponse():
                await self._of_folder(order)
                return True
            case Fork(at):
                return bool(await self.fork(at))
            case Rename(name):
                return await self.rename(name)
            case ChangeTags(changes):
                return await self.tag(changes)
            case ShellOutput(command, output):
                return await self.ran(command, output)
            case ReportStatus() | ReportSnapshot():  # a program has `status` and `snapshot`
                return False
            case _:
                return await self._orders.send(order)

    async def step(self) -> bool:
        """Do the next thing that was ordered. False if there is none, or the user is asked."""
        return await self._orders.step()

    async def settle(self) -> None:
        """Run turns until nothing is left to do, or the user has to be asked."""
        while await self.step():
            pass

    def request(self, event: "PutToPerson", seq: int) -> "Request":
        """The document about a call that is asked about, when this event says so.

        An answer without a hash is to what was shown last.
        """
        from refold.views.stream_json.encode import approval_request, question

        found = _put(event, self.view)
        if found is None:  # it was over before this could be said
            return approval_request(event, seq)
        self._orders.told[found.id] = event.hash
        if isinstance(found, Questions):
            return question(event, seq, found.questions)
        made = self.as_made(found.call.call)
        return approval_request(event, seq, made, self.permissions.rule_sets(found))

    async def waiting(self) -> "Sequence[Document]":
        """The documents of requests that wait for the user, with their original numbers."""
        wanted = {each.id for each in self.requests}
        if not wanted:
            return ()
        from refold.views.stream_json.encode import documents_of

        entries = await self._engine.record.entries()
        newest = {id_: e for e in entries if (id_ := _id_of(e)) in wanted}
        found = [
            list(documents_of(Frame(e.seq, 0, e), live=False, asked=self.request))
            for e in newest.values()
        ]
        # A plan stands behind the result of the call that wrote it.
        return [told[-1] for told in found]

    def forget_orders(self) -> None:
        """Drop the messages that wait for a turn of their own."""
        self._orders.forget()

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
        order = SendMessage(text, when, tuple(images), typed, client_key=client_key)
        return await self._orders.say(order, when)

    async def steer(self, text: str) -> None:
        """A message for the running turn: the model has it at its next step."""
        await self.send(Steer(text))

    async def queue(self, text: str) -> None:
        """A message for after the running turn; it begins the next one."""
        await self.send(Queue(text))

    async def interrupt(self, instead: str = "", *, reason: str = "interrupted") -> bool:
        """Stop the turn at once. `instead` is the next message."""
        return await self.send(Interrupt(instead, reason))

    async def cancel(self, reason: str = "cancelled") -> bool:
        """Stop the turn at once, as a program does."""
        return await self.send(Cancel(reason))

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
        """Answer a call that waits for approval. False if another client was first, or it
        has changed.

        `request` is what was shown, or the id of a waiting call. `grant` is "session" or
        "always", for the offered `rule` (by default the first; several that suffice
        together), or one of these rules for the session; `answers` are to the questions of the call.
        """
        call_id = request if isinstance(request, str) else request.id
        found = next((r for r in self.requests if r.id == call_id), None)
        if found is None or isinstance(found, PlanToJudge):
            return False
        hash_ = found.call.hash
        if not isinstance(request, str) and request.call.hash != hash_:
            return False
        order = (
            QuestionResponse(call_id, tuple(answers), hash_)
            if allowed and isinstance(found, Questions)
            else ApprovalResponse(call_id, allowed, hash_, reason, grant, *_chosen(rule))
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

    async def compact(self, focus: str = "", *, prune: bool = False) -> bool:
        """Compact the conversation, now or before the next step. False if it is empty.

        `focus` is what the summary must preserve; `prune` only prunes old tool results.
        """
        return await self._engine.compact("prune" if prune else "full", focus)

    async def edit_message(self, message: int, text: str) -> bool:
        """Change a message of the conversation, by the number of its event."""
        return await self.send(EditMessage(message, text))

    async def delete_message(self, message: int) -> bool:
        """Take a message out of the conversation, by the number of its event."""
        return await self.send(DeleteMessage(message))

    async def withdraw_message(self, message: int) -> bool:
        """Withdraw a message that waits for the end of the turn, by the number of its event."""
        return await self.send(WithdrawMessage(message))

    async def set_mode(self, mode: Mode) -> bool:
        """Set the permission mode: default, accept-edits, plan, rules-only or bypass."""
        return await self.send(SetMode(mode))

    async def set_model(self, model: str) -> bool:
        """The model from the next turn on, as provider/model."""
        return await self.send(SetModel(model))

    async def set_effort(self, effort: Effort) -> bool:
        """How hard the model thinks from the next turn on: low, medium, high or max."""
        return await self.send(SetEffort(effort))

    async def set_agent(self, agent: str) -> bool:
        """The agent from the next turn on, by name."""
        return await self.send(SetAgent(agent))

    async def set_budget(self, budget: Budget) -> bool:
        """The budget of a turn, including the running one."""
        return await self.send(
            SetBudget(budget.dollars, budget.tokens, budget.calls, budget.seconds)
        )

    async def set_steps(self, steps: int) -> bool:
        """How many model responses a turn may have; 0: as the settings say."""
        return await self.send(SetSteps(steps))

    async def stop(self, name: str = "") -> bool:
        """Stop a subagent and all below it ("": all of them), or a background command."""
        beside = self.view.background.command(name) is not None
        return await self.send(StopBackground(name) if beside else StopChild(name))

    async def rename(self, name: str) -> bool:
        """Call the session so; "": it has no name. Raises `BadInput` for what is none."""
        from refold.session.rename import rename

        return await rename(self._engine.record, name)

    async def tag(self, changes: Sequence[str]) -> bool:
        """+TAG adds a tag, -TAG takes one away. Raises `BadInput` for what is none."""
        from refold.session.rename import tag

        return await tag(self._engine.record, changes)

    async def ran(self, command: str, output: str) -> bool:
        """Record a command that the user ran: the model gets it with the next message."""
        return await self._engine.inbox.ran(command, output)

    async def fork(self, at: int | None = None) -> str:
        """Copy the session up to event `at`, or all of it. The id of the copy, not opened."""
        return (await self._app.fork(self.id, at)).id

    async def set_directory(
        self, directory: str | Path = "", added: Sequence[str | Path] = ()
    ) -> Sequence[str]:
        """Continue in another directory, or with more of them. Returns the notices.

        Not while a turn runs. The handle stays the same; watchers must watch again.
        """
        check_between_turns(self._engine, "directory")
        named = (directory, *added)
        where, *more = await anyio.to_thread.run_sync(real_directories, named)
        target = ResumeTarget(self.id, where, tuple(more))
        opened = await self._launch.switch(self._engine, target, untrusted)
        self._app, self._engine = opened.app, opened.engine
        self._orders = Dispatcher(opened.app, opened.engine)
        return opened.notices

    async def _of_folder(self, order: SetDirectory | InstructionsResponse) -> None:
        if isinstance(order, SetDirectory):
            await self.set_directory(order.directory, order.added)
            return
        from refold.client.changed_instructions import judge

        await anyio.to_thread.run_sync(judge, self._app, order)


def _id_of(entry: Entry) -> str:
    """What is asked for by this event, as `requests` names it; "": nothing is."""
    match entry.event:
        case ChildAsked(id_) | Judged(id_, "ask"):
            return id_
        case Ended(control=PlanReady()):
            return plan_id(entry.seq)
        case _:
            return ""


def _put(event: "PutToPerson", view: View) -> Permission | Questions | None:
    if isinstance(event, ChildAsked):
        return of_child(event)
    found = view.conversation.call(event.call_id)
    return None if found is None else of_call(found)


def _chosen(rule: str | Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """As the fields of an `ApprovalResponse`: one rule, or a set."""
    return (rule, ()) if isinstance(rule, str) else ("", tuple(rule))
