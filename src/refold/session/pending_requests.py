"""What waits for the user's decision, as values: a call to be allowed, questions, a plan.

Computed from the view alone, so what waited before a restart waits after it. Clients show
these, and answer through the inbox; the first answer wins.

A plan is not an open call. It ends the turn with `plan_ready` and waits in the view,
because a user thinks about it for longer than a call should stay open, and `-p` returns it
as the result. `PlanAnswered` comes in one batch with the mode and the message of the next
turn.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.child_events import ChildAsked
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.journal.state.plans import Plan
from refold.values.display import ASK_USER, NESTED_QUESTION, AskedQuestion, parse_questions


class Permission(Struct, frozen=True):
    """A call that needs permission. With `call.once`, permission is for this call only.

    `who` wants it: "" for the agent of the session, or one of its children, with its agent.
    """

    call: OpenCall
    who: str = ""

    @property
    def id(self) -> str:
        return self.call.call.id


class Questions(Struct, frozen=True):
    """Questions of the model to the user."""

    call: OpenCall
    questions: Sequence[AskedQuestion]
    who: str = ""

    @property
    def id(self) -> str:
        return self.call.call.id


class PlanToJudge(Struct, frozen=True):
    plan: Plan

    @property
    def id(self) -> str:
        return plan_id(self.plan.seq)


def plan_id(seq: int) -> str:
    """The id of the plan in the event `seq`."""
    return f"plan-{seq}"


Request: TypeAlias = Permission | Questions | PlanToJudge


def requests(view: View) -> tuple[Request, ...]:
    """The open requests, oldest first; empty while the turn is being stopped."""
    if view.turn.stopped:
        return ()
    calls = (
        *map(request_of_call, view.conversation.waiting_calls),
        *map(request_of_child, view.children.asks),
    )
    plan = view.plans.waiting
    shown = not view.turn.seq and view.turn.outcome == "plan_ready"
    return (*calls, *((PlanToJudge(plan),) if plan and shown else ()))


def request_of_call(call: OpenCall, person: str = "") -> Permission | Questions:
    forms = NESTED_QUESTION in call.call.id
    if call.call.name == ASK_USER and (
        questions := parse_questions(call.call.arguments, forms=forms)
    ):
        return Questions(call, questions, person)
    return Permission(call, person)


def request_of_child(asks: ChildAsked) -> Permission | Questions:
    """A request of a subagent as the user sees it, with the id to answer it by."""
    call = replace(asks.call, id=asks.id)
    open_call = OpenCall(
        call, "asked", reason=asks.reason, hash=asks.hash, once=asks.once,
        changes=asks.changes,
    )  # fmt: skip
    return request_of_call(open_call, asks.who)
