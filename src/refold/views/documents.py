"""The documents of the stream as types: what their published JSON Schema is made from.

`stream` and `result` write them; a test holds all that they write against this. What is
told of children and code stands in `documents_below`. A field without a default is always
there. Pure.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from refold.values.asked import Asking
from refold.values.control import Shorter
from refold.values.effort import Effort
from refold.values.outcome import Outcome
from refold.values.rights import Mode
from refold.values.todos import Todo
from refold.values.usage import Usage

Seq: TypeAlias = Annotated[
    int, Meta(ge=1, description="the number of its event in the journal")
]
Cost: TypeAlias = Annotated[
    float | None, Meta(description="US dollars; null: a price is not known")
]
Kind: TypeAlias = Literal["created", "changed", "deleted"]
Unlimited: TypeAlias = Annotated[float | None, Meta(description="null: no limit")]


class Written(Struct, frozen=True, kw_only=True, tag_field="type"):
    """About an event in the journal."""

    seq: Seq


class Change(Struct, frozen=True):
    path: str
    kind: Kind


class Init(Struct, frozen=True, tag_field="type", tag="system"):
    """The session is open. `schema` is the version of all these documents."""

    subtype: Literal["init"]
    schema: int
    session_id: str
    directory: str
    version: str


class UserMessage(Written, frozen=True, kw_only=True, tag="user_message"):
    """Words came in."""

    text: str
    sender: str
    when: Literal["now", "next"]
    pictures: list[str] | UnsetType = UNSET


class TurnStart(Written, frozen=True, kw_only=True, tag="turn_start"):
    """A turn began."""

    turn: int


class AssistantMessage(Written, frozen=True, kw_only=True, tag="assistant_message"):
    """A whole answer, or, `partial`, what had come of it."""

    text: str
    thinking: str
    model: str
    stop: Literal["end", "calls", "length", "refused"]
    partial: bool
    usage: Usage
    cost: Cost


class AnswerRejected(Written, frozen=True, kw_only=True, tag="answer_rejected"):
    """The answer did not match the schema, and goes back to the model."""

    reason: str


class ToolCall(Written, frozen=True, kw_only=True, tag="tool_call"):
    """The answer held this call; `within` names the call whose code made it."""

    call_id: str
    tool: str
    arguments: object
    within: str | UnsetType = UNSET


class ToolApprovalRequest(Written, frozen=True, kw_only=True, tag="tool_approval_request"):
    """Somebody has to allow this call."""

    call_id: str
    hash: str
    reason: str
    once: bool
    rule: str
    tool: str | UnsetType = UNSET
    arguments: object = UNSET
    who: str | UnsetType = UNSET


class ToolApprovalResult(Written, frozen=True, kw_only=True, tag="tool_approval_result"):
    """A call was allowed or denied, or is not there any more."""

    call_id: str
    verdict: Literal["allow", "deny", "gone"]
    rule: str
    reason: str


class Question(Written, frozen=True, kw_only=True, tag="question"):
    """The model asks what only the person knows."""

    call_id: str
    hash: str
    questions: list[Asking]
    who: str | UnsetType = UNSET


class ToolResult(Written, frozen=True, kw_only=True, tag="tool_result"):
    """What the model reads of a call; `whole` names the blob if it was cut."""

    call_id: str
    outcome: Literal["done", "failed", "refused", "stopped", "unknown"]
    text: str
    whole: str


class Diff(Written, frozen=True, kw_only=True, tag="diff"):
    """A file that a call changed, as a unified diff."""

    call_id: str
    path: str
    kind: Kind
    text: str


class PlanReady(Written, frozen=True, kw_only=True, tag="plan_ready"):
    """A plan waits to be judged: `plan` is its number."""

    plan: int
    title: str
    text: str


class PlanApproved(Written, frozen=True, kw_only=True, tag="plan_approved"):
    """`text` is the plan if it was edited."""

    plan: int
    text: str


class PlanRejected(Written, frozen=True, kw_only=True, tag="plan_rejected"):
    """Somebody does not want this plan."""

    plan: int


class Checkpoint(Written, frozen=True, kw_only=True, tag="checkpoint"):
    """The files were taken down."""

    roots: list[str]
    left_out: list[str]
    changed: list[Change]


class FilesRestored(Written, frozen=True, kw_only=True, tag="files_restored"):
    """The files are again as at `checkpoint`; `before` is the one to undo that."""

    checkpoint: int
    before: int
    files: int


class Error(Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The model could not be asked; or, with `line`, an order makes no sense."""

    kind: str
    reason: str
    seq: Seq | UnsetType = UNSET
    line: int | UnsetType = UNSET


class Interrupted(Written, frozen=True, kw_only=True, tag="interrupted"):
    """Somebody stopped it."""

    outcome: Literal["interrupted", "cancelled"]
    reason: str


class TodoUpdate(Written, frozen=True, kw_only=True, tag="todo_update"):
    """The checklist as it is now."""

    todos: list[Todo]


class CompactAsked(Written, frozen=True, kw_only=True, tag="compact_asked"):
    """A person wants the talk told shorter."""

    kind: Shorter
    focus: str


class Compact(Written, frozen=True, kw_only=True, tag="compact"):
    """The talk is told shorter from here on. Sizes are in characters."""

    kind: Literal["prune", "full", "trim"]
    reason: str
    dropped: int
    kept_from: int
    summary: str
    before: int
    after: int


class SideCall(Written, frozen=True, kw_only=True, tag="side_call"):
    """A model is asked beside the talk; so much is set aside for it."""

    purpose: str
    model: str
    dollars: Cost
    tokens: int


class UsageOfIt(Written, frozen=True, kw_only=True, tag="usage"):
    """What that came to: `side_call` is its number."""

    side_call: int
    model: str
    usage: Usage | None
    cost: Cost
    failed: str


class Memory(Written, frozen=True, kw_only=True, tag="memory"):
    """Memory was made of the session up to the event `upto`."""

    upto: int
    kept: int
    model: str


class FilesChangedElsewhere(
    Written, frozen=True, kw_only=True, tag="files_changed_elsewhere"
):
    """Files that the model knew and somebody else changed."""

    files: list[Change]


class BudgetChosen(Written, frozen=True, kw_only=True, tag="budget"):
    """A person chose what a turn may use up."""

    dollars: Unlimited
    tokens: Unlimited
    calls: Unlimited
    seconds: Unlimited


class StepsChosen(Written, frozen=True, kw_only=True, tag="steps"):
    """A person chose how many answers a turn may have; null: as it is set."""

    steps: int | None


class ModeChanged(Written, frozen=True, kw_only=True, tag="mode_changed"):
    """How much runs unasked from here on."""

    mode: Mode


class ModelChanged(Written, frozen=True, kw_only=True, tag="model_changed"):
    """The model from the next turn on."""

    model: str


class EffortChanged(Written, frozen=True, kw_only=True, tag="effort_changed"):
    """How hard the model thinks from the next turn on."""

    effort: Effort


class AgentChanged(Written, frozen=True, kw_only=True, tag="agent_changed"):
    """Who works from the next turn on."""

    agent: str


class Notice(Written, frozen=True, kw_only=True, tag="notice"):
    """Something you should know, such as a mended journal."""

    text: str


class TurnEnd(Written, frozen=True, kw_only=True, tag="turn_end"):
    """The turn is over."""

    outcome: Outcome
    reason: str


class Denial(Struct, frozen=True):
    call_id: str
    tool: str
    arguments: object
    reason: str


class WaitingPlan(Struct, frozen=True):
    title: str
    text: str
    id: int


class Evidence(Struct, frozen=True):
    given: str
    found: str


class Claim(Struct, frozen=True):
    id: str
    claim: str
    required: bool
    state: str
    reason: str
    evidence: list[Evidence]


class Result(Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """What a turn came to; always the last. "" is the session where none could be opened."""

    outcome: Outcome
    reason: str
    text: str
    session_id: str
    model: str
    steps: int
    duration_seconds: float
    usage: Usage
    cost: Cost
    denials: list[Denial]
    files: list[Change]
    warnings: list[str]
    structured: object = UNSET
    plan: WaitingPlan | UnsetType = UNSET
    claims: list[Claim] | UnsetType = UNSET
