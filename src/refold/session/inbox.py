"""The inbox: everything that enters a session from outside a turn becomes an event here.

Each method returns once its event is on the disk, so an acknowledged message is never lost;
False means that there was nothing to do. Nothing waits in here: a running turn finds the
event in its view at its next step, and a stop interrupts the step (`Session` watches for
it). Clients only call these methods and read.

A message that waits for the end of the turn can be withdrawn, and is changed by withdrawing
it and sending another. If an event changed it in place, two clients could edit one message.
A message for the next step may be on its way already.
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
    AgentChosen,
    Answered,
    BudgetSet,
    CompactionRequested,
    EffortChosen,
    Event,
    Granted,
    MessageEdited,
    MessageWithdrawn,
    ModeChanged,
    ModelChosen,
    PlanAnswered,
    Said,
    StepLimitSet,
    Stopped,
)
from refold.journal.state.conversation import SHELL_SENDER, with_edit
from refold.journal.state.fold import View
from refold.journal.state.rights import after_planning, is_switched
from refold.session.recorder import Recorder
from refold.tools.contract import ImageData
from refold.values.control import CompactionKind
from refold.values.modes import Effort, Format, Mode
from refold.values.text import clean, holds_outside, mark_invisible
from refold.values.usage import Budget

PLAN_APPROVED = "The plan is approved. Carry it out."
PLAN_EDITED = "The plan is approved as I edited it. Carry it out:\n\n{text}"
PLAN_REJECTED = "The plan is not approved yet. Revise it and show it again:\n\n{feedback}"


class Inbox:
    """`mode` is the mode of the settings, for sessions without a mode of their own."""

    def __init__(
        self, record: Recorder, author: str = "person", mode: Mode = "default"
    ) -> None:
        self._record, self._author = record, author
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
        """Send a message to the model: in the running turn, or in the next one.

        `typed` is the part that the user wrote, if the message has more: the text of a
        template, or input from a pipe. None: all of it. Raises `BadInput` for an image that
        cannot be shown.
        """
        shown = tuple([(await self._record.put_image(image))[0] for image in images])

        def make_events(view: View) -> Sequence[Event]:
            if client_key and client_key in view.account.client_keys:
                return ()
            outside = holds_outside(text)
            message = Said(
                text, self._author, when, client_key, shown, typed, outside=outside
            )
            return (message,)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def record_command(self, command: str, output: str) -> bool:
        """Record a command that the user ran, with its output: sent with their next
        message.
        """
        message = Said(mark_invisible(output)[0], SHELL_SENDER, "next", typed=f"!{command}")
        return await self._record.append_if(
            lambda view: (message,), kept=True, author=self._author
        )

    async def interrupt(self, reason: str = "interrupted", *, instead: str = "") -> bool:
        """Stop the turn at once. `instead` is the next message to the model."""
        words = (Said(instead, self._author, "next"),) if instead else ()
        return await self._stop(Stopped(reason), *words)

    async def cancel(self, reason: str = "cancelled") -> bool:
        """Stop the turn at once, for a program rather than for a person."""
        return await self._stop(Stopped(reason, "cancelled"))

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
        """Decide about a call that waits for a verdict. The first decision wins.

        `grants` are rules that hold for the rest of the session; `answers` are to the
        questions of the call. `hash_` identifies what was shown to the user: the verdict
        counts for nothing else.
        """

        answer = Answered(call_id, allowed, reason, tuple(answers))
        granted = tuple(map(Granted, grants)) if allowed else ()

        def make_events(view: View) -> Sequence[Event]:
            return _verdict_events(view, answer, hash_, granted)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def stop_child(self, child: str, reason: str = "stopped by the person") -> bool:
        """Stop this child and all below it, or all children (""). The turn continues."""

        def make_events(view: View) -> Sequence[Event]:
            names = (item.name for item in view.children.running if not item.stopped)
            return tuple(ChildStopped(n, reason) for n in names if child in ("", n))

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def mail(self, teammate: str, text: str, client_key: str = "") -> bool:
        """Write to a teammate. False if none of that name runs, or it has the message."""
        make_events = partial(_mail_events, self._author, teammate, text, client_key)
        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def approve_plan(
        self, plan: int = 0, *, text: str = "", mode: Mode | None = None
    ) -> bool:
        """Approve the waiting plan: a turn begins, in `mode` or the mode before the plan.

        `plan` is the seq of the plan that was shown; `text` is the user's edited version.
        """

        def make_events(view: View) -> Sequence[Event]:
            pending = view.plans.waiting
            if pending is None or plan not in (0, pending.seq):
                return ()
            follows = mode or after_planning(view.rights, self._mode)
            edited = text if text.strip() and text != pending.text else ""
            words = PLAN_EDITED.format(text=edited) if edited else PLAN_APPROVED
            message = Said(words, self._author, "next")
            then = (
                (AgentChosen(view.session.after_plan),) if view.session.after_plan else ()
            )
            answered = PlanAnswered(pending.seq, True, edited)
            return (answered, ModeChanged(follows), *then, message)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def reject_plan(self, plan: int = 0, *, feedback: str = "") -> bool:
        """Reject the waiting plan. With `feedback`, the model revises it."""

        def make_events(view: View) -> Sequence[Event]:
            pending = view.plans.waiting
            if pending is None or plan not in (0, pending.seq):
                return ()
            message = Said(PLAN_REJECTED.format(feedback=feedback), self._author, "next")
            words = (message,) if feedback.strip() else ()
            return (PlanAnswered(pending.seq, False), *words)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def edit_message(self, message: int, text: str | None) -> bool:
        """Change or delete (None) a message of the conversation. False if nothing changes.

        `message` is the seq of its event. Raises `BadInput` while a turn runs, and if
        that is not a message of the conversation now.
        """
        if text is not None and not text.strip():
            raise BadInput("a message cannot be empty: delete it instead")

        def make_events(view: View) -> Sequence[Event]:
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
        """Withdraw a message that waits for the end of the turn, by the seq of its event.

        Raises `BadInput` for one that does not wait: it was delivered, or will be at once.
        """
        make_events = partial(_withdrawal_events, message)
        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def set_mode(self, mode: Mode) -> bool:
        """Set the permission mode, from the next call on."""

        def make_events(view: View) -> Sequence[Event]:
            return () if (view.rights.mode or self._mode) == mode else (ModeChanged(mode),)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def grant(self, rule: str) -> bool:
        """Add an allow rule for the rest of the session."""
        return await self._record_unless(
            lambda view: rule in view.rights.granted, Granted(rule)
        )

    async def choose_effort(self, effort: Effort) -> bool:
        """Set the reasoning effort from the next turn on; "" means as in the settings."""
        _check_choice("an effort", effort, get_args(Effort))
        return await self._record_unless(
            lambda view: view.session.effort == effort, EffortChosen(effort)
        )

    async def _record_unless(self, is_done: Callable[[View], bool], event: Event) -> bool:
        """Record the event, unless `is_done` returns True for the view."""

        def make_events(view: View) -> Sequence[Event]:
            return () if is_done(view) else (event,)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def choose_model(self, model: str, form: Format | Literal[""] = "") -> bool:
        """Set the model (provider/model) from the next turn on, and its format, if any."""
        _check_choice("a format", form, ("", *get_args(Format)))

        def same(view: View) -> bool:
            return view.session.model == model and form in ("", view.session.format)

        return await self._record_unless(same, ModelChosen(model, form))

    async def choose_agent(
        self,
        agent: str,
        *,
        mode: Mode | Literal[""] = "",
        next_agent: str = "",
        preset: str = "",
    ) -> bool:
        """Set the agent of the next turns, by name. Raises `BadInput` while a turn runs.

        `mode` is the mode of this agent; after an agent that only plans, the mode before it
        is restored. The agent `next_agent` carries out the plan. `preset` replaces the prompt of
        the agent main.
        """

        def make_events(view: View) -> Sequence[Event]:
            if view.turn.seq:
                raise BadInput("the agent cannot be changed while a turn runs")
            if view.session.agent == agent:
                new = preset not in ("", view.session.preset)
                return (AgentChosen(agent, next_agent, preset),) if new else ()
            current_mode, wanted = view.rights.mode or self._mode, mode
            if not wanted and view.session.after_plan and current_mode == "plan":
                wanted = after_planning(view.rights, self._mode)
            moded = (ModeChanged(wanted),) if wanted and wanted != current_mode else ()
            return (AgentChosen(agent, next_agent, preset), *moded)

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def switch(self, to: TeamsSwitched | TracingSwitched) -> bool:
        """Switch teams or tracing on or off for this session, from the next turn on."""
        return await self._record_unless(lambda view: is_switched(view.rights, to), to)

    async def set_budget(self, budget: Budget) -> bool:
        """Set the budget of a turn, including the running one.

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
        """Limit the answers of a turn, the running one included; 0 means as in the settings."""
        if steps < 0:
            raise BadInput(f"a turn cannot have {steps} answers: give 1 or more, or 0")
        return await self._record_unless(
            lambda view: view.rights.steps == steps, StepLimitSet(steps)
        )

    async def compact(self, kind: CompactionKind = "full", focus: str = "") -> bool:
        """Compact the conversation, as soon as no call of the current turn is open, or else between
        two turns or with the next one.
        """

        def make_events(view: View) -> Sequence[Event]:
            asked = CompactionRequested(kind, focus)
            return (
                ()
                if not view.conversation.messages or view.conversation.compaction == asked
                else (asked,)
            )

        return await self._record.append_if(make_events, kept=True, author=self._author)

    async def withdraw_compaction(self) -> bool:
        """Withdraw a compaction that was requested and is not done."""
        return await self._record_unless(
            lambda view: view.conversation.compaction is None,
            CompactionRequested(withdrawn=True),
        )


def _check_choice(kind: str, value: str, choices: Sequence[str]) -> None:
    """Check a value for programs without a type checker; documents are checked when read."""
    if value not in choices:
        names = ", ".join(filter(None, choices))
        raise BadInput(f"{value!r} is not {kind}: {names}")


def _mail_events(
    sender: str, teammate: str, text: str, client_key: str, view: View
) -> Sequence[Event]:
    key = f"{sender}/{client_key}/{teammate}" if client_key else ""
    known = key and any(mail.key == key for mail in view.children.mail)
    works = any(child.born.teammate == teammate for child in view.children.team)
    return (
        (MailSent(sender, teammate, clean(text), key=key),) if works and not known else ()
    )


def _withdrawal_events(message: int, view: View) -> Sequence[Event]:
    if all(queued.seq != message for queued in view.message_queue):
        raise BadInput(
            f"message {message} does not wait for the end of the turn: it was sent, "
            "or it was withdrawn already"
        )
    return (MessageWithdrawn(message),)


def _verdict_events(
    view: View, answer: Answered, hash_: str, grants: Sequence[Granted]
) -> Sequence[Event]:
    """The event of a decision about a call of the session, or of a subagent, whose relay
    then passes it on.
    """
    id_, allowed, reason, answers = (
        answer.call_id,
        answer.allowed,
        answer.reason,
        answer.answers,
    )
    for asks in view.children.asks:
        if asks.id == id_ and hash_ in ("", asks.hash):
            of_it = ChildAnswered(id_, allowed, reason, answers, hash=asks.hash)
            return (of_it,) if asks.once else (*grants, of_it)
    call = view.conversation.call(id_)
    if call is None or call.stage != "asked" or (hash_ and call.hash != hash_):
        return ()
    return (answer,) if call.once else (*grants, answer)


def _stop_events(events: Sequence[Event], view: View) -> Sequence[Event]:
    # Waiting wishes are about to begin a turn; that one is stopped, too.
    return events if (view.turn.seq or view.wishes) and not view.turn.stopped else ()
