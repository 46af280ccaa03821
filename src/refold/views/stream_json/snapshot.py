"""Defines the documents about the state of a session: status, choices and snapshot. Pure.

A snapshot is for a client that joins late: it then continues with the documents whose `seq` is
larger than that of the snapshot. Status and snapshot are computed from the view, at any time;
all other documents report events.
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
    """The choices for the next turn, of the session or of the settings."""

    model: str  # as provider/model; "": none
    agent: str
    mode: Mode
    effort: Effort
    steps: int  # model responses of a turn; 0: no limit
    budget: Budget
    teams: bool = False  # whether the agent may lead a team
    tracing: bool = False  # whether model requests are recorded as sent


class InstructionChange(Struct, frozen=True):
    """A changed file of instructions. `said` describes the change, `change` is the diff."""

    said: str
    change: FileChange


class ChangedInstructions(Struct, frozen=True):
    """Instructions of the folder that changed since the user trusted them.

    The trusted version is used until `instructions_response` answers the `question`. `use`
    and `keep` are the two answers.
    """

    hash: str
    question: str
    use: str
    keep: str
    changes: Sequence[InstructionChange]


class ContextFill(Struct, frozen=True):
    """The share of the context window that the next request takes, as `/context`
    estimates it.
    """

    tokens: int
    window: int  # assumed, if the model's is unknown


class Status(Placed, frozen=True, kw_only=True, tag="status"):
    """The activity of the session, the choices for its next turn, and its usage.

    `choices` are the model, agent, mode, effort, steps and budget of that turn. `waiting`
    are the ids of the calls that wait for a person.
    """

    session_id: str
    seq: Seq
    running: bool  # whether a turn is open; a turn that waits for an answer is open
    # Whether its process exited in the middle of that turn. `continue` or a message
    # continues the turn.
    cut_off: bool = False
    # Why that turn has stopped, such as a full disk. `continue` or a message tries again.
    problem: str = ""
    held_by: str = ""  # describes the other process in which it is open
    directory: str
    address: str = ""  # of a workspace elsewhere, for which the directory stands
    ports: Sequence[int] = ()  # open ports of the place that were opened after it connected
    added: Sequence[str] = ()  # additional directories of its workspace
    choices: Choices
    outcome: str  # of the newest turn; "" until it ends
    turn_steps: int  # model responses in the newest turn
    usage: Usage  # of the session
    cost: Cost
    subagents_usage: Usage
    subagents_cost: Cost
    context: ContextFill = ContextFill(0, 0)
    waiting: Sequence[str]
    subagents: Sequence[str]  # names of those that run
    background: Sequence[str] = ()  # names of the background commands that run
    # What a server's client must ask the user; null for other clients.
    instructions: ChangedInstructions | None = None


class SnapshotCall(Struct, frozen=True):
    """A call of a message. `result` is null until the call ends."""

    id: str
    name: str
    result: str | None
    failed: bool = False


class SnapshotMessage(Struct, frozen=True):
    """A message as the model sees it. Results are stored with their calls."""

    role: Literal["user", "assistant"]
    text: str
    calls: Sequence[SnapshotCall] = ()


class Snapshot(Placed, frozen=True, kw_only=True, tag="snapshot"):
    """The conversation as the model has it now, after compaction and rewinds; and the
    status.

    A program that joins late, or lost documents, continues from the `seq` of the status.
    """

    status: Status
    messages: Sequence[SnapshotMessage]
    todos: Sequence[Todo]
    plan: WaitingPlan | None  # the plan that waits for approval


class History(Written, frozen=True, kw_only=True, tag="history"):
    """Stands for the older events, if a client on a socket asked only for the newest events.

    Older events that still have an effect are sent before this document.
    """

    title: str
    todos: Sequence[Todo]
    plan: WaitingPlan | None  # the plan that waits for approval


# Documents of events about the choices, the name and the model requests of a session.


class BudgetChosen(Written, frozen=True, kw_only=True, tag="budget"):
    """A person set the budget of a turn; null: no limit."""

    dollars: Unlimited
    tokens: Unlimited
    calls: Unlimited
    seconds: Unlimited


class StepsChosen(Written, frozen=True, kw_only=True, tag="steps"):
    """A person set the step limit of a turn; null: the limit in the settings."""

    steps: int | None


class ModeChanged(Written, frozen=True, kw_only=True, tag="mode_changed"):
    """A person set the permission mode, from now on."""

    mode: Mode


class ModelChanged(Written, frozen=True, kw_only=True, tag="model_changed"):
    """A person chose the model from the next turn on.

    `format` is the format in which the conversation is sent to the model, if a person chose a
    format.
    """

    model: str
    format: Format | UnsetType = UNSET


class EffortChanged(Written, frozen=True, kw_only=True, tag="effort_changed"):
    """A person chose the reasoning effort from the next turn on."""

    effort: Effort


class AgentChanged(Written, frozen=True, kw_only=True, tag="agent_changed"):
    """A person chose the agent from the next turn on, or the preset of the agent main."""

    agent: str
    preset: str | UnsetType = UNSET


class TeamsChanged(Written, frozen=True, kw_only=True, tag="teams_changed"):
    """A person chose whether the agent may lead a team, from the next turn on."""

    on: bool


class TracingChanged(Written, frozen=True, kw_only=True, tag="tracing_changed"):
    """A person chose whether model requests are recorded as sent, from the next turn on."""

    on: bool


class TeamMail(Written, frozen=True, kw_only=True, tag="team_mail"):
    """A message between two members of the team; `lead` is the session itself."""

    sender: str
    to: str
    kind: Literal["message", "plan", "review", "shutdown"]
    text: str


class TeammateStatus(Written, frozen=True, kw_only=True, tag="teammate_status"):
    """A teammate is idle until mail or a free task arrives."""

    child: str
    idle: bool


class TaskUpdate(Written, frozen=True, kw_only=True, tag="task_update"):
    """This session changed `tasks` of the board.

    The tasks have the form in which `refold tasks show --json` prints them.
    """

    tasks: Sequence[BoardTask]


class TitleChanged(Written, frozen=True, kw_only=True, tag="title_changed"):
    """The session has a new title. If `named`, a person gave it as the name."""

    title: str
    named: bool


class DirectoryChanged(Written, frozen=True, kw_only=True, tag="workdir_changed"):
    """The session works in `directory` from now on, or where it did if `directory` is "".

    `added` are additional directories of its workspace.
    """

    directory: str
    added: Sequence[str]


class CommandStarted(Written, frozen=True, kw_only=True, tag="background_started"):
    """A command runs in the background from now on. With `notify`, its end wakes the agent.

    With `moved`, the command belonged to a call until a person moved it to the background.
    """

    name: str
    call_id: str
    command: str
    directory: str
    notify: bool
    moved: bool


class CommandEnded(Written, frozen=True, kw_only=True, tag="background_ended"):
    """A background command no longer runs. `code` is null if it was stopped.

    `text` is the end of its output; if the output is long, the blob `whole` has all of it.
    The outcome `lost` means that refold exited while the command ran.
    """

    name: str
    outcome: Literal["done", "failed", "stopped", "lost"]
    code: int | None
    reason: str
    text: str
    whole: str


class ModelRequest(Written, frozen=True, kw_only=True, tag="llm_request"):
    """A model call as it was sent.

    The body that was sent begins with the first `same_prefix` bytes of the previous body
    for this `target`; the blob `body` has the bytes that follow them.
    """

    target: str
    body: str
    same_prefix: int


class ModelResponse(Written, frozen=True, kw_only=True, tag="llm_response"):
    """The response to the last `llm_request`. The blob `body` has the response.

    If the response was not received, `body` is "".
    """

    target: str
    body: str


def status(
    view: View, choices: Choices, waiting: Sequence[str], default_window: int = 32_000
) -> Status:
    """Return the status. `waiting` are the ids of requests that wait for a person, without
    plans.

    `default_window` is the assumed size of the context window if it is unknown.
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
    """Return the document with the conversation as it is now and the status `current`."""
    return Snapshot(
        status=current,
        messages=messages_of(view),
        todos=view.conversation.todos,
        plan=_waiting_plan(view),
    )


def history(view: View) -> History:
    """Return the document that stands for the events of `view`, which are not sent."""
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
    """Return the conversation as the model receives it now."""
    messages = [spoken.message for spoken in view.conversation.messages]
    parts = (part for message in messages for part in message.parts)
    results = {part.call_id: part for part in parts if isinstance(part, ToolResult)}
    return [_message(entry, results) for entry in messages if entry.role != "tool"]


def _message(message: Message, results: dict[str, ToolResult]) -> SnapshotMessage:
    """Return a message of the snapshot. Each call has its result, if it is in `results`."""
    calls = tuple(_to_snapshot_call(call, results.get(call.id)) for call in message.calls)
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    role = "assistant" if message.role == "assistant" else "user"
    return SnapshotMessage(role, text, calls)


def _to_snapshot_call(call: ToolCall, result: ToolResult | None) -> SnapshotCall:
    """Return a call with its result, if it has one."""
    if result is None:
        return SnapshotCall(call.id, call.name, result=None)
    return SnapshotCall(call.id, call.name, result.text, result.failed)
