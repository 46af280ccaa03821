"""The requests that wait for the user's decision: calls to be approved, questions, and plans.

The requests are computed from the view alone, so they are the same after a restart. Clients
show them, and answer through the inbox; the first answer wins.

A plan is not an open call. It ends the turn with `plan_ready` and waits in the view,
because a user thinks about a plan for longer than a call should stay open, and because `-p`
returns it as the result. `PlanAnswered` is recorded in one batch with the mode and the
message of the next turn.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.child_events import ChildAsked
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.journal.state.plans import Plan
from refold.values.display import (
    ASK_USER,
    NESTED_QUESTION,
    AskedQuestion,
    RunConditions,
    parse_questions,
)
from refold.values.modes import Mode


class Permission(Struct, frozen=True):
    """A call that needs permission.

    If `call.once`, the user can allow only this call, and cannot add a rule. `who` is the
    child that makes the call, with its agent; "" if the agent of the session itself makes the
    call.
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


class RequestElsewhere(Struct, frozen=True):
    """The details of a request according to the process that has the session open.

    That process has the rules, the files and the sandbox of the call, which may differ from
    those of this process.
    """

    conditions: RunConditions | None = None
    rule_sets: tuple[tuple[str, ...], ...] = ()  # those that an approval may add
    easier_mode: Mode | None = None


class PlanToJudge(Struct, frozen=True):
    plan: Plan

    @property
    def id(self) -> str:
        return plan_id(self.plan.seq)


def plan_id(seq: int) -> str:
    """Return the id under which the plan in the event `seq` is approved or rejected."""
    return f"plan-{seq}"


Request: TypeAlias = Permission | Questions | PlanToJudge


def requests(view: View) -> tuple[Request, ...]:
    """Return the open requests, oldest first; () while the turn is being stopped."""
    if view.turn.stopped:
        return ()
    calls = (
        *map(request_of_call, view.conversation.waiting_calls),
        *map(request_of_child, view.children.asks),
    )
    plan = view.plans.waiting
    is_plan_shown = not view.turn.seq and view.turn.outcome == "plan_ready"
    if plan is None or not is_plan_shown:
        return calls
    return (*calls, PlanToJudge(plan))


def request_of_call(call: OpenCall, who: str = "") -> Permission | Questions:
    """Return what a waiting call asks the user: its questions, or the permission to run.

    `who` names the child that makes the call; "" is the session's own agent.
    """
    if call.call.name == ASK_USER:
        # Questions with form fields are asked by a running tool, in a call of their own.
        forms = NESTED_QUESTION in call.call.id
        questions = parse_questions(call.call.arguments, forms=forms)
        if questions:
            return Questions(call, questions, who)
    return Permission(call, who)


def request_of_child(ask: ChildAsked) -> Permission | Questions:
    """Return a subagent's request as the user sees it, with the id under which it is
    answered.
    """
    call = replace(ask.call, id=ask.id)
    open_call = OpenCall(
        call, "asked", reason=ask.reason, hash=ask.hash, once=ask.once, changes=ask.changes
    )
    return request_of_call(open_call, ask.who)
