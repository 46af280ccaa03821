"""The state of a session as documents: its status, and a snapshot for a client that joins late.

They are made of the view, at any time; the other documents tell what happens. A client that
has a snapshot continues with the documents whose `seq` is larger than the snapshot's. Pure.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from refold.journal.state.fold import View
from refold.values.control import Todo
from refold.values.messages import Message, Text, ToolCall, ToolResult
from refold.values.modes import Effort, Mode
from refold.values.usage import Budget, Usage
from refold.views.stream_json.documents import Cost, WaitingPlan

Seq = Annotated[int, Meta(ge=0, description="the number of the newest event; 0: none")]


class Choices(Struct, frozen=True, kw_only=True):
    """What applies to the next turn: chosen for the session, or set."""

    model: str  # as provider/model; "": there is none
    agent: str
    mode: Mode
    effort: Effort
    steps: int  # model responses of a turn; 0: no limit
    budget: Budget


class Status(Struct, frozen=True, kw_only=True, tag_field="type", tag="status"):
    """What the session is doing, what applies to its next turn, and what it has used."""

    session_id: str
    seq: Seq
    running: bool  # is a turn open, also one that waits for an answer?
    directory: str
    choices: Choices
    outcome: str  # of the newest turn; "": none has ended since the last one started
    turn_steps: int  # model responses in the newest turn
    usage: Usage  # of the session
    cost: Cost
    subagents_usage: Usage
    subagents_cost: Cost
    waiting: Sequence[str]  # ids of the calls that wait for a person
    subagents: Sequence[str]  # names of those that run


class SnapshotCall(Struct, frozen=True):
    """A call of a message. `result` is null while it has none."""

    id: str
    name: str
    result: str | None
    failed: bool = False


class SnapshotMessage(Struct, frozen=True):
    """A message as the model has it: results stand with their calls."""

    role: Literal["user", "assistant"]
    text: str
    calls: Sequence[SnapshotCall] = ()


class Snapshot(Struct, frozen=True, kw_only=True, tag_field="type", tag="snapshot"):
    """The conversation as the model has it now, after compaction and rewinds; and the status."""

    status: Status
    messages: Sequence[SnapshotMessage]
    todos: Sequence[Todo]
    plan: WaitingPlan | None  # the one that waits to be approved


def status(view: View, choices: Choices, waiting: Sequence[str]) -> Status:
    """`waiting` are the ids of the requests that are open, without plans."""
    account, turn = view.account, view.turn
    return Status(
        session_id=view.session.id,
        seq=view.seq,
        running=bool(turn.seq),
        directory=view.session.directory,
        choices=choices,
        outcome=turn.outcome,
        turn_steps=turn.steps,
        usage=account.spent.usage,
        cost=account.spent.cost,
        subagents_usage=account.children_spent.usage,
        subagents_cost=account.children_spent.cost,
        waiting=waiting,
        subagents=[child.name for child in view.children.running],
    )


def snapshot(view: View, now: Status) -> Snapshot:
    said = [spoken.message for spoken in view.conversation.messages]
    parts = (part for message in said for part in message.parts)
    results = {part.call_id: part for part in parts if isinstance(part, ToolResult)}
    plan = view.plans.waiting
    return Snapshot(
        status=now,
        messages=[_message(each, results) for each in said if each.role != "tool"],
        todos=view.conversation.todos,
        plan=None if plan is None else WaitingPlan(plan.title, plan.text, plan.seq),
    )


def _message(message: Message, results: dict[str, ToolResult]) -> SnapshotMessage:
    calls = tuple(_call(call, results.get(call.id)) for call in message.calls)
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    role = "assistant" if message.role == "assistant" else "user"
    return SnapshotMessage(role, text, calls)


def _call(call: ToolCall, found: ToolResult | None) -> SnapshotCall:
    if found is None:
        return SnapshotCall(call.id, call.name, None)
    return SnapshotCall(call.id, call.name, found.text, found.failed)
