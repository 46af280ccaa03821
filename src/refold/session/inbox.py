"""The inbox: records as an event everything that enters a session from outside its turns.

Each method returns once its event is on the disk, so an acknowledged message is never lost. A
method returns False if it had nothing to record. The inbox holds no queue: a running turn finds
the event in its view at its next step, and a stop interrupts the step (`Session` watches for a
stop). Clients change a session only by these methods.

A message that waits for the end of the turn can be withdrawn. To change it, withdraw it and
send another. An event that changed it in place would let two clients edit one message, and
a message for the next step may have been sent already.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Literal, get_args

from refold.errors import BadInput
from refold.journal.events.child_events import (
    ChildAnswered,
    ChildStopped,
    MailSent,
    TeamsSwitched,
    TracingSwitched,
)
from refold.journal.events.kinds import (
    Answered,
    CompactionRequested,
    Event,
    Granted,
    MessageEdited,
    MessageWithdrawn,
    PlanAnswered,
    Said,
    Stopped,
)
from refold.journal.events.setting_events import (
    AgentChosen,
    BudgetSet,
    EffortChosen,
    ModeChanged,
    ModelChosen,
    StepLimitSet,
)
from refold.journal.state.conversation import SHELL_SENDER, with_edit
from refold.journal.state.fold import View
from refold.journal.state.rights import after_planning, is_switched
from refold.session.recorder import Recorder
from refold.tools.contract import ImageData
from refold.values.control import CompactionKind
from refold.values.messages import Image
from refold.values.modes import Effort, Format, Mode
from refold.values.text import clean, holds_outside, mark_invisible
from refold.values.usage import Budget

PLAN_APPROVED = "The plan is approved. Carry it out."
PLAN_EDITED = "The plan is approved as I edited it. Carry it out:\n\n{text}"
PLAN_REJECTED = "The plan is not approved yet. Revise it and show it again:\n\n{feedback}"


class Inbox:
    """Records what clients send. `mode` applies to sessions without a mode of their own."""

    def __init__(
        self, record: Recorder, author: str = "person", mode: Mode = "default"
    ) -> None:
        self._record = record
        self._author = author
        self._mode: Mode = mode

    async def say(
        self,
        text: str,
        *,
        when: Literal["now", "next"] = "now",
        client_key: str = "",
        images: Sequence[ImageData] = (),
        typed: str | None = None,
    ) -> bool:
        """Send a message to the model: in the running turn ("now"), or in the next turn
        ("next").

        `typed` is the part of `text` that the user wrote, if a template or input from a pipe
        was added; None means all of `text`. Return False if a message with this `client_key`
        was recorded before. Raises `BadInput` for an image that cannot be shown.
        """
        stored = list[Image]()
        for image in images:
            stored_image, _ = await self._record.put_image(image)
            stored.append(stored_image)
        message = Said(
            text,
            self._author,
            when,
            client_key,
            images=tuple(stored),
            typed=typed,
            outside=holds_outside(text),
        )

        def make_events(view: View) -> Sequence[Event]:
            """Return the message; none if a message with this client key is recorded."""
            is_recorded = client_key and client_key in view.account.client_keys
            return () if is_recorded else (message,)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def record_command(self, command: str, output: str) -> bool:
        """Record a command that the user ran, with its output.

        Both are sent with the user's next message.
        """
        text, _ = mark_invisible(output)
        message = Said(text, SHELL_SENDER, when="next", typed=f"!{command}")
        return await self._record.append_if(
            lambda view: (message,), kept=True, author=self._author
        )

    async def interrupt(self, reason: str = "interrupted", *, instead: str = "") -> bool:
        """Stop the turn at once. `instead`, unless "", is sent as the next message to the
        model.

        Return False if there is no turn to stop.
        """
        messages = (Said(instead, self._author, when="next"),) if instead else ()
        return await self._stop(Stopped(reason), *messages)

    async def cancel(self, reason: str = "cancelled") -> bool:
        """Stop the turn at once because a program asks for it.

        If a person asks for it, call `interrupt`. Return False if there is no turn to stop.
        """
        return await self._stop(Stopped(reason, outcome="cancelled"))

    async def _stop(self, *events: Event) -> bool:
        make_events = partial(_stop_events, events)
        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def answer(
        self,
        call_id: str,
        *,
        allowed: bool,
        reason: str = "",
        grants: Sequence[str] = (),
        answers: Sequence[str] = (),
        hash_: str = "",
    ) -> bool:
        """Record the user's decision about a call that waits for it.

        The first decision wins: return False if the call does not wait any more. `grants` are
        rules for the rest of the session; `answers` are the answers to the call's questions. If
        `hash_` is set, it identifies what the user saw, and the decision applies only to that.
        """

        answer = Answered(call_id, allowed, reason, tuple(answers))
        granted = tuple(map(Granted, grants)) if allowed else ()

        def make_events(view: View) -> Sequence[Event]:
            return _verdict_events(view, answer, hash_, granted)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def stop_child(self, child: str, reason: str = "stopped by the person") -> bool:
        """Stop this child and all children below it. "" stops all children. The turn
        continues.

        Return False if no child was stopped.
        """

        def make_events(view: View) -> Sequence[Event]:
            running = (item.name for item in view.children.running if not item.stopped)
            names = [name for name in running if child in ("", name)]
            return tuple(ChildStopped(name, reason) for name in names)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def mail(self, teammate: str, text: str, client_key: str = "") -> bool:
        """Send a message to a teammate.

        Return False if no teammate of that name runs, or if the teammate got this message
        already.
        """
        make_events = partial(_mail_events, self._author, teammate, text, client_key)
        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def approve_plan(
        self, plan: int = 0, *, text: str = "", mode: Mode | None = None
    ) -> bool:
        """Approve the waiting plan, and begin a turn in `mode`.

        If `mode` is None, the turn is in the mode before plan mode. `plan` is the event
        number of the plan that was shown; 0 means any plan. `text` is the plan as the user
        edited it, "" if unchanged. Return False if that plan does not wait.
        """

        def make_events(view: View) -> Sequence[Event]:
            """Return the approval and what follows from it; none if the plan does not wait."""
            pending = view.plans.waiting
            if pending is None or plan not in (0, pending.seq):
                return ()
            next_mode = mode or after_planning(view.rights, self._mode)
            is_edited = bool(text.strip()) and text != pending.text
            edited_text = text if is_edited else ""
            words = PLAN_EDITED.format(text=text) if is_edited else PLAN_APPROVED
            message = Said(words, self._author, when="next")
            approval = PlanAnswered(pending.seq, approved=True, text=edited_text)
            events: list[Event] = [approval, ModeChanged(next_mode)]
            if view.session.after_plan:
                events.append(AgentChosen(view.session.after_plan))
            return (*events, message)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def reject_plan(self, plan: int = 0, *, feedback: str = "") -> bool:
        """Reject the waiting plan. With `feedback`, a turn begins in which the model revises
        it.

        `plan` is as for `approve_plan`. Return False if that plan does not wait.
        """

        def make_events(view: View) -> Sequence[Event]:
            """Return the rejection, with a message if there is feedback; none if the plan does
            not wait.
            """
            pending = view.plans.waiting
            if pending is None or plan not in (0, pending.seq):
                return ()
            rejection = PlanAnswered(pending.seq, approved=False)
            if not feedback.strip():
                return (rejection,)
            words = PLAN_REJECTED.format(feedback=feedback)
            return (rejection, Said(words, self._author, when="next"))

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def edit_message(self, message: int, text: str | None) -> bool:
        """Change a message of the conversation, or delete it if `text` is None.

        Return False if nothing changes. `message` is the number of the message's event. Raises
        `BadInput` while a turn runs, and if the event is not a message of the present
        conversation.
        """
        if text is not None and not text.strip():
            raise BadInput("a message cannot be empty: delete it instead")

        def make_events(view: View) -> Sequence[Event]:
            """Return the edit; none if it would change nothing. Raises `BadInput`."""
            if view.turn.seq:
                raise BadInput("messages cannot be changed while a turn runs")
            event = MessageEdited(message, text)
            after = with_edit(view.conversation, event)
            if after is None:
                raise BadInput(
                    f"there is no message {message} in the conversation now: it was never one, "
                    "or it was deleted, rewound or compacted (/history lists them)"
                )
            return () if after.messages == view.conversation.messages else (event,)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def withdraw(self, message: int) -> bool:
        """Withdraw the message with this event number, which waits for the end of the turn.

        Raises `BadInput` for a message that was delivered already, or will be delivered at
        once.
        """
        make_events = partial(_withdrawal_events, message)
        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def set_mode(self, mode: Mode) -> bool:
        """Set the permission mode, from the next tool call on."""

        def make_events(view: View) -> Sequence[Event]:
            current_mode = view.rights.mode or self._mode
            return () if current_mode == mode else (ModeChanged(mode),)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def grant(self, rule: str) -> bool:
        """Add an allow rule for the rest of the session."""
        return await self._record_unless(
            lambda view: rule in view.rights.granted, Granted(rule)
        )

    async def choose_effort(self, effort: Effort) -> bool:
        """Set the reasoning effort, from the next turn on. "" means the effort in the
        settings.
        """
        _check_choice("an effort", effort, get_args(Effort))
        return await self._record_unless(
            lambda view: view.session.effort == effort, EffortChosen(effort)
        )

    async def _record_unless(self, is_done: Callable[[View], bool], event: Event) -> bool:
        """Record the event, unless `is_done` returns True for the view. Return whether it is
        recorded.
        """

        def make_events(view: View) -> Sequence[Event]:
            return () if is_done(view) else (event,)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def choose_model(self, model: str, form: Format | Literal[""] = "") -> bool:
        """Set the model, as provider/model, from the next turn on.

        `form` is the format in which the conversation is sent; "" keeps the present format.
        """
        _check_choice("a format", form, ("", *get_args(Format)))

        def is_chosen(view: View) -> bool:
            return view.session.model == model and form in ("", view.session.format)

        return await self._record_unless(is_chosen, ModelChosen(model, form))

    async def choose_agent(
        self,
        agent: str,
        *,
        mode: Mode | Literal[""] = "",
        next_agent: str = "",
        preset: str = "",
    ) -> bool:
        """Set the agent of the next turns, by name. Raises `BadInput` while a turn runs.

        `mode` is the mode of this agent. With "", the present mode is kept; but if the
        present agent only plans, the mode before that agent is restored. If the new agent
        only plans, `next_agent` is the agent that carries out its plan. `preset` replaces the
        prompt of the agent `main`.
        """

        def make_events(view: View) -> Sequence[Event]:
            """Return the choice, and a change of mode if one is due; none if nothing would
            change.
            """
            if view.turn.seq:
                raise BadInput("the agent cannot be changed while a turn runs")
            chosen = AgentChosen(agent, next_agent, preset)
            if view.session.agent == agent:
                is_new_preset = preset not in ("", view.session.preset)
                return (chosen,) if is_new_preset else ()
            current_mode = view.rights.mode or self._mode
            next_mode = mode
            present_agent_only_plans = view.session.after_plan and current_mode == "plan"
            if not next_mode and present_agent_only_plans:
                next_mode = after_planning(view.rights, self._mode)
            if not next_mode or next_mode == current_mode:
                return (chosen,)
            return (chosen, ModeChanged(next_mode))

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def switch(self, to: TeamsSwitched | TracingSwitched) -> bool:
        """Switch teams or tracing on or off for this session, from the next turn on."""
        return await self._record_unless(lambda view: is_switched(view.rights, to), to)

    async def set_budget(self, budget: Budget) -> bool:
        """Set the budget of each turn, including the running one.

        Raises `BadInput` for an invalid limit.
        """
        for name in budget.__struct_fields__:
            value = getattr(budget, name)
            if value is not None and not 0 <= value < inf:
                raise BadInput(
                    f"a budget's {name} cannot be {value}: give 0 or more, or None"
                )
        return await self._record_unless(
            lambda view: view.rights.budget == budget, BudgetSet(budget)
        )

    async def set_steps(self, steps: int) -> bool:
        """Limit the model responses of each turn, including the running one. 0 means the limit
        in the settings.
        """
        if steps < 0:
            raise BadInput(f"a turn cannot have {steps} answers: give 1 or more, or 0")
        return await self._record_unless(
            lambda view: view.rights.steps == steps, StepLimitSet(steps)
        )

    async def compact(self, kind: CompactionKind = "full", focus: str = "") -> bool:
        """Request a compaction.

        The compaction takes place in the running turn once no call is open or, without a
        running turn, before the next one. Return False if there is nothing to compact, or if it
        was requested already.
        """

        def make_events(view: View) -> Sequence[Event]:
            """Return the request; none if it waits already, or if there is no message to
            compact.
            """
            request = CompactionRequested(kind, focus)
            is_requested = view.conversation.compaction == request
            if is_requested or not view.conversation.messages:
                return ()
            return (request,)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def withdraw_compaction(self) -> bool:
        """Withdraw a compaction that was requested and not carried out yet."""
        return await self._record_unless(
            lambda view: view.conversation.compaction is None,
            CompactionRequested(withdrawn=True),
        )


def _check_choice(kind: str, value: str, choices: Sequence[str]) -> None:
    """Raise `BadInput` if `value` is not one of `choices`; `kind` is for the message.

    A program that passes the value may not use a type checker. Values that arrive as JSON are
    checked when they are read.
    """
    if value not in choices:
        names = ", ".join(filter(None, choices))
        raise BadInput(f"{value!r} is not {kind}: {names}")


def _mail_events(
    sender: str, teammate: str, text: str, client_key: str, view: View
) -> Sequence[Event]:
    """Return the mail; none if it was sent already, or if the teammate does not run."""
    key = f"{sender}/{client_key}/{teammate}" if client_key else ""
    was_sent = key and any(mail.key == key for mail in view.children.mail)
    runs = any(child.born.teammate == teammate for child in view.children.team)
    if was_sent or not runs:
        return ()
    return (MailSent(sender, teammate, clean(text), key=key),)


def _withdrawal_events(message: int, view: View) -> Sequence[Event]:
    """Return the withdrawal of a message. Raises `BadInput` if it does not wait."""
    if message not in {queued.seq for queued in view.message_queue}:
        raise BadInput(
            f"message {message} does not wait for the end of the turn: it was sent, "
            "or it was withdrawn already"
        )
    return (MessageWithdrawn(message),)


def _verdict_events(
    view: View, answer: Answered, hash_: str, grants: Sequence[Granted]
) -> Sequence[Event]:
    """Return the events that record a decision about a call, and the rules that it grants.

    Return () if the call does not wait for a decision, or if `hash_` is set and is not that of
    the call. Grants are left out if the user may allow only this call (`once`). If the call is
    a subagent's, `agents.relay` passes the decision to the subagent's session.
    """
    for ask in view.children.asks:
        is_same_call = hash_ in ("", ask.hash)
        if ask.id == answer.call_id and is_same_call:
            child_answer = ChildAnswered(
                ask.id, answer.allowed, answer.reason, answer.answers, hash=ask.hash
            )
            return (child_answer,) if ask.once else (*grants, child_answer)
    call = view.conversation.call(answer.call_id)
    if call is None or call.stage != "asked":
        return ()
    is_same_call = hash_ in ("", call.hash)
    if not is_same_call:
        return ()
    return (answer,) if call.once else (*grants, answer)


def _stop_events(events: Sequence[Event], view: View) -> Sequence[Event]:
    """Return `events`, which stop a turn; () without a turn, or if its stop is recorded."""
    # `turn_requests` are messages that are about to begin a turn, which a stop prevents.
    has_turn = view.turn.seq or view.turn_requests
    return events if has_turn and not view.turn.stopped else ()
