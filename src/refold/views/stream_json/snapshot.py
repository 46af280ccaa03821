"""The state of a session as documents: its status, its choices, and a snapshot.

A snapshot is for a client that joins late. Both are computed from the view, at any time;
the other documents report what happens. A client that has a snapshot continues with the
documents whose `seq` is larger than the snapshot's. Pure.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from refold.journal.state.fold import View
from refold.values.control import BoardTask, Todo
from refold.values.messages import Message, Text, ToolCall, ToolResult
from refold.values.modes import Effort, Format, Mode
from refold.values.usage import Budget, Usage
from refold.views.context import context_usage
from refold.views.stream_json.documents import (
    Cost,
    FileChange,
    Placed,
    Unlimited,
    WaitingPlan,
    Written,
)

Seq = Annotated[int, Meta(ge=0, description="the number of the newest event; 0: none")]


class Choices(Struct, frozen=True, kw_only=True):
    """What applies to the next turn: chosen for the session, or set."""

    model: str  # as provider/model; "": there is none
    agent: str
    mode: Mode
    effort: Effort
    steps: int  # model responses of a turn; 0: no limit
    budget: Budget
    teams: bool = False  # may the agent lead a team?
    tracing: bool = False  # are model requests recorded as sent?


class InstructionChange(Struct, frozen=True):
    """`said` says what happened to the file, `change` has the diff."""

    said: str
    change: FileChange


class ChangedInstructions(Struct, frozen=True):
    """Instructions of the folder that the user trusts in another version, which is used until
    `instructions_response` answers the `question`. `use` and `keep` are the two answers.
    """

    hash: str
    question: str
    use: str
    keep: str
    changes: Sequence[InstructionChange]


class ContextFill(Struct, frozen=True):
    """How much of the context window the next request takes, as `/context` estimates it."""

    tokens: int
    window: int  # as assumed, if the model's is unknown


class Status(Placed, frozen=True, kw_only=True, tag="status"):
    """What the session is doing, what applies to its next turn, and what it has used.

    `choices` are the model, agent, mode, effort, steps and budget of that turn, `waiting` the
    ids of the calls that wait for a person.
    """

    session_id: str
    seq: Seq
    running: bool  # is a turn open, also one that waits for an answer?
    # Did its process end in the middle of that turn? `continue` or a message finishes it.
    cut_off: bool = False
    # Why that turn has stopped, such as a full disk; `continue` or a message tries again.
    problem: str = ""
    held_by: str = ""  # the other process in which it is open
    directory: str
    address: str = ""  # of a workspace elsewhere, for which the directory stands
    ports: Sequence[int] = ()  # that began to listen there after it connected
    added: Sequence[str] = ()  # more directories in which it works
    choices: Choices
    outcome: str  # of the newest turn; "": none has ended since the last one started
    turn_steps: int  # model responses in the newest turn
    usage: Usage  # of the session
    cost: Cost
    subagents_usage: Usage
    subagents_cost: Cost
    context: ContextFill = ContextFill(0, 0)
    waiting: Sequence[str]
    subagents: Sequence[str]  # names of those that run
    background: Sequence[str] = ()  # names of the background commands that run
    # What a client of a server has to ask the user; elsewhere null.
    instructions: ChangedInstructions | None = None


class SnapshotCall(Struct, frozen=True):
    """A call of a message. `result` is null while it has none."""

    id: str
    name: str
    result: str | None
    failed: bool = False


class SnapshotMessage(Struct, frozen=True):
    """A message as the model sees it: results are with their calls."""

    role: Literal["user", "assistant"]
    text: str
    calls: Sequence[SnapshotCall] = ()


class Snapshot(Placed, frozen=True, kw_only=True, tag="snapshot"):
    """The conversation as the model has it now, after compaction and rewinds; and the status.

    A program that joins late, or lost documents, continues from `seq` of the status.
    """

    status: Status
    messages: Sequence[SnapshotMessage]
    todos: Sequence[Todo]
    plan: WaitingPlan | None  # the one that waits to be approved


class History(Written, frozen=True, kw_only=True, tag="history"):
    """On a socket that asked for the newest events: what is older is left out, except
    documents that still say something, which come before this one.
    """

    title: str
    todos: Sequence[Todo]
    plan: WaitingPlan | None  # the one that waits to be approved


# What was chosen for a session, its name and its requests: documents of events.


class BudgetChosen(Written, frozen=True, kw_only=True, tag="budget"):
    """A person set the budget of a turn; null: no limit."""

    dollars: Unlimited
    tokens: Unlimited
    calls: Unlimited
    seconds: Unlimited


class StepsChosen(Written, frozen=True, kw_only=True, tag="steps"):
    """A person set the step limit of a turn; null: that of the settings."""

    steps: int | None


class ModeChanged(Written, frozen=True, kw_only=True, tag="mode_changed"):
    """A person chose what runs without asking from here on."""

    mode: Mode


class ModelChanged(Written, frozen=True, kw_only=True, tag="model_changed"):
    """The model from the next turn on, and the format of the conversation for it, if chosen."""

    model: str
    format: Format | UnsetType = UNSET


class EffortChanged(Written, frozen=True, kw_only=True, tag="effort_changed"):
    """The reasoning effort from the next turn on."""

    effort: Effort


class AgentChanged(Written, frozen=True, kw_only=True, tag="agent_changed"):
    """The agent from the next turn on, and the preset of the agent main, if chosen."""

    agent: str
    preset: str | UnsetType = UNSET


class TeamsChanged(Written, frozen=True, kw_only=True, tag="teams_changed"):
    """Whether the agent may lead a team, from the next turn on."""

    on: bool


class TracingChanged(Written, frozen=True, kw_only=True, tag="tracing_changed"):
    """Whether model requests are recorded as sent, from the next turn on."""

    on: bool


class TeamMail(Written, frozen=True, kw_only=True, tag="team_mail"):
    """A message between two members of the team; `lead` is the session itself."""

    sender: str
    to: str
    kind: Literal["message", "plan", "review", "shutdown"]
    text: str


class TeammateStatus(Written, frozen=True, kw_only=True, tag="teammate_status"):
    """A teammate has nothing to do until mail or a free task comes."""

    child: str
    idle: bool


class TaskUpdate(Written, frozen=True, kw_only=True, tag="task_update"):
    """Tasks of the board as this session left them, as `refold tasks show --json` prints them."""

    tasks: Sequence[BoardTask]


class TitleChanged(Written, frozen=True, kw_only=True, tag="title_changed"):
    """The session has this name, or, if `named` is false, this title."""

    title: str
    named: bool


class DirectoryChanged(Written, frozen=True, kw_only=True, tag="workdir_changed"):
    """The session works in `directory` from here on, with these `added`; "": as before."""

    directory: str
    added: Sequence[str]


class CommandStarted(Written, frozen=True, kw_only=True, tag="background_started"):
    """A command runs in the background from here on. With `notify`, its end wakes the agent.

    With `moved`, the call ran it until a person moved it there.
    """

    name: str
    call_id: str
    command: str
    directory: str
    notify: bool
    moved: bool


class CommandEnded(Written, frozen=True, kw_only=True, tag="background_ended"):
    """A background command no longer runs. `code` is null if it was stopped.

    `text` is the end of its output, and the blob `whole` all of a long one. It is `lost` if
    refold exited meanwhile.
    """

    name: str
    outcome: Literal["done", "failed", "stopped", "lost"]
    code: int | None
    reason: str
    text: str
    whole: str


class ModelRequest(Written, frozen=True, kw_only=True, tag="llm_request"):
    """A model call as it was sent. Its body begins with the first `same_prefix` bytes of
    the last one with this `target`; the blob `body` has the rest.
    """

    target: str
    body: str
    same_prefix: int


class ModelResponse(Written, frozen=True, kw_only=True, tag="llm_response"):
    """What came back for that request: the blob `body`; "" for nothing."""

    target: str
    body: str


def status(
    view: View, choices: Choices, waiting: Sequence[str], default_window: int = 32_000
) -> Status:
    """The status. `waiting` are the ids of open requests, without plans.

    `default_window` is assumed if the context window of the model is unknown.
    """
    account, turn = view.account, view.turn
    context = context_usage(view, default_window)
    return Status(
        session_id=view.session.id,
        seq=view.seq,
        running=bool(turn.seq),
        directory=view.session.directory,
        added=view.session.roots,
        choices=choices,
        outcome=turn.outcome,
        turn_steps=turn.steps,
        usage=account.spent.usage,
        cost=account.spent.cost,
        subagents_usage=account.children_spent.usage,
        subagents_cost=account.children_spent.cost,
        context=ContextFill(context.used_tokens, context.window),
        waiting=waiting,
        subagents=[child.name for child in view.children.running],
        background=[command.name for command in view.background.running],
    )


def snapshot(view: View, current: Status) -> Snapshot:
    return Snapshot(
        status=current,
        messages=messages_of(view),
        todos=view.conversation.todos,
        plan=_waiting_plan(view),
    )


def history(view: View) -> History:
    return History(
        seq=view.seq,
        title=view.session.name or view.session.title,
        todos=view.conversation.todos,
        plan=_waiting_plan(view),
    )


def _waiting_plan(view: View) -> WaitingPlan | None:
    plan = view.plans.waiting
    return None if plan is None else WaitingPlan(plan.title, plan.text, plan.seq)


def messages_of(view: View) -> Sequence[SnapshotMessage]:
    """The conversation as the model has it now."""
    messages = [spoken.message for spoken in view.conversation.messages]
    parts = (part for message in messages for part in message.parts)
    results = {part.call_id: part for part in parts if isinstance(part, ToolResult)}
    return [_message(entry, results) for entry in messages if entry.role != "tool"]


def _message(message: Message, results: dict[str, ToolResult]) -> SnapshotMessage:
    calls = tuple(_to_snapshot_call(call, results.get(call.id)) for call in message.calls)
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    role = "assistant" if message.role == "assistant" else "user"
    return SnapshotMessage(role, text, calls)


def _to_snapshot_call(call: ToolCall, result: ToolResult | None) -> SnapshotCall:
    if result is None:
        return SnapshotCall(call.id, call.name, None)
    return SnapshotCall(call.id, call.name, result.text, result.failed)
