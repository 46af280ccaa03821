"""Defines the documents of the JSON stream: one class for each kind of document. Pure.

`encode` and `turn_result` make them, msgspec encodes them, and the published JSON Schema is
generated from them. A field without a default is always present. `seq` is the number of the
event that a document is about; in a document of live news, it is the number of the last event
before it. A client may miss live news.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from refold.values.claims import Evidence, Finding
from refold.values.control import CompactionKind, Todo
from refold.values.display import AskedQuestion, RunConditions
from refold.values.modes import Mode, Outcome
from refold.values.usage import Usage

Seq: TypeAlias = Annotated[
    int, Meta(ge=1, description="the number of its event in the journal")
]
Cost: TypeAlias = Annotated[
    float | None, Meta(description="US dollars; null: a price is not known")
]
Kind: TypeAlias = Literal["created", "changed", "deleted"]
Unlimited: TypeAlias = Annotated[float | None, Meta(description="null: no limit")]


class Placed(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Additional fields for a reader on a socket.

    `id` is the position at which to resume: the epoch of the writer (which increases when
    another process opens the session), the number of the event, and the number of the
    document among those of the event.
    """

    id: str | UnsetType = UNSET
    conversation: str | UnsetType = UNSET
    node: str | UnsetType = UNSET  # "root", or the subagent whose document it is
    turn: int | UnsetType = UNSET  # the number of the turn; 0: between two turns
    at: float | UnsetType = UNSET  # seconds since 1970


class Written(Placed, frozen=True, kw_only=True):
    """A document about an event in the journal."""

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
    """A message was received. If a person wrote only a part of it, `typed` is that part."""

    text: str
    sender: str
    when: Literal["now", "next"]
    images: Sequence[str] | UnsetType = UNSET  # their names
    image_blobs: Sequence[str] | UnsetType = UNSET
    typed: str | UnsetType = UNSET
    client_key: str | UnsetType = UNSET  # the key of the order that sent it


class Delivered(Written, frozen=True, kw_only=True, tag="delivered"):
    """The messages with these numbers belong to the conversation from now on."""

    messages: Sequence[int]


class TurnStart(Written, frozen=True, kw_only=True, tag="turn_start"):
    """A turn began. `turn` is its number."""

    turn: int  # pyright: ignore[reportGeneralTypeIssues] - here it is always given


class ModelStart(Written, frozen=True, kw_only=True, tag="model_start"):
    """The model is called. If no response follows, the call is repeated."""


class AssistantMessage(Written, frozen=True, kw_only=True, tag="assistant_message"):
    """A complete model response, or with `partial` the part that was received."""

    text: str
    thinking: str
    model: str
    stop: Literal["end", "calls", "length", "refused"]
    partial: bool
    usage: Usage
    cost: Cost


class AnswerRejected(Written, frozen=True, kw_only=True, tag="answer_rejected"):
    """The response is returned to the model, because it does not match the schema, or because
    something is missing in it.
    """

    reason: str


class ToolCall(Written, frozen=True, kw_only=True, tag="tool_call"):
    """A call in the response, or one made by the code of the call `within`."""

    call_id: str
    tool: str
    arguments: object
    within: str | UnsetType = UNSET


class FileChange(Struct, frozen=True):
    """A change that a call would make to a file. `text` is the unified diff."""

    path: str
    kind: Kind
    text: str


class ToolApprovalRequest(Written, frozen=True, kw_only=True, tag="tool_approval_request"):
    """A call needs approval. `who` is the subagent that asks, with its agent.

    An approval may also grant one of `rules`, of which the first is the most useful. Or it
    may grant all rules of `rule_set`, which allow the call only together. `changes` are what
    the call would change in the files as they are now. `conditions` say how a command would
    run: `sandboxed`, with `network`, the `hosts` that it may reach, protected files that it
    may write (`opened`) or only read (`shown`). The permission mode `easier_mode` would allow
    the call.
    """

    call_id: str
    hash: str
    reason: str
    once: bool
    rules: Sequence[str]
    rule_set: Sequence[str] | UnsetType = UNSET
    easier_mode: Mode | UnsetType = UNSET
    conditions: RunConditions | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    arguments: object = UNSET
    changes: Sequence[FileChange] | UnsetType = UNSET
    who: str | UnsetType = UNSET


class ToolApprovalResult(Written, frozen=True, kw_only=True, tag="tool_approval_result"):
    """A call was allowed or denied, or no longer exists."""

    call_id: str
    verdict: Literal["allow", "deny", "gone"]
    rule: str
    reason: str


class Question(Written, frozen=True, kw_only=True, tag="question"):
    """The model asks something that only the user knows. `who` is the subagent that asks.

    Each of `questions` has `question`, `options` (`label`, `about`) and `many`.
    """

    call_id: str
    hash: str
    questions: Sequence[AskedQuestion]
    who: str | UnsetType = UNSET


class ToolStart(Written, frozen=True, kw_only=True, tag="tool_start"):
    """The call is being executed."""

    call_id: str


class ToolResult(Written, frozen=True, kw_only=True, tag="tool_result"):
    """The result that the model sees. If it was cut, the blob `whole` has all of it.

    `final` is the answer of the turn, if the call gives it.
    """

    call_id: str
    outcome: Literal["done", "failed", "refused", "stopped", "unknown"]
    text: str
    whole: str
    image_blobs: Sequence[str] | UnsetType = UNSET
    final: str | UnsetType = UNSET


class Diff(Written, frozen=True, kw_only=True, tag="diff"):
    """A call changed a file. `text` is the unified diff."""

    call_id: str
    path: str
    kind: Kind
    text: str


class PlanReady(Written, frozen=True, kw_only=True, tag="plan_ready"):
    """A plan waits for approval. `plan` is its number."""

    plan: int
    title: str
    text: str


class PlanApproved(Written, frozen=True, kw_only=True, tag="plan_approved"):
    """The plan is approved; `text` is the plan if it was edited."""

    plan: int
    text: str


class PlanRejected(Written, frozen=True, kw_only=True, tag="plan_rejected"):
    """The plan is rejected."""

    plan: int


class Checkpoint(Written, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint of the files was made.

    `changed` lists the differences from the last checkpoint.
    """

    roots: Sequence[str]
    left_out: Sequence[str]
    changed: Sequence[Change]


class FileUploaded(Written, frozen=True, kw_only=True, tag="file_uploaded"):
    """The user put a file of `size` bytes into the workspace."""

    path: str
    size: int


class FilesRestored(Written, frozen=True, kw_only=True, tag="files_restored"):
    """The files are restored to `checkpoint`. Restoring `before` undoes this."""

    checkpoint: int
    before: int
    files: int


class Rewound(Written, frozen=True, kw_only=True, tag="rewound"):
    """The conversation is restored to its state before the event `to`."""

    to: int


class MessageEdited(Written, frozen=True, kw_only=True, tag="message_edited"):
    """A person changed the message with the number `message`, or deleted it (`text` is
    null).
    """

    message: int
    text: str | None


class MessageWithdrawn(Written, frozen=True, kw_only=True, tag="message_withdrawn"):
    """A person withdrew the message with the number `message` before it was delivered."""

    message: int


class ForkMade(Struct, frozen=True, kw_only=True, tag_field="type", tag="fork_made"):
    """The order `fork` was carried out. `session_id` is the copy of the session `source`."""

    session_id: str
    source: str


class Error(Placed, frozen=True, kw_only=True, tag="error"):
    """A model call failed; or, if there is no `seq`, an order was not carried out.

    For a model call, `partial` is the part of the response that was received. If `dropped`,
    that part is not used: the turn continues, and the model is called again. For an order,
    `line` is the number of its line on stdin, and `client_key` is its key.
    """

    kind: str
    reason: str
    seq: Seq | UnsetType = UNSET
    line: int | UnsetType = UNSET
    partial: str | UnsetType = UNSET
    dropped: bool | UnsetType = UNSET
    client_key: str | UnsetType = UNSET


class OrderTaken(Struct, frozen=True, kw_only=True, tag_field="type", tag="order_taken"):
    """An order with a `client_key` was accepted. A message is in the journal by then.

    `changed` is false if the order had no effect, or the same order was sent before.
    """

    client_key: str
    changed: bool


class EventRecorded(Struct, frozen=True, kw_only=True, tag_field="type", tag="recorded"):
    """The journal has the event `seq`.

    Only a client that reads the journal itself gets this document, as `refold attach` does.
    """

    seq: Seq


class Interrupted(Written, frozen=True, kw_only=True, tag="interrupted"):
    """The turn was stopped."""

    outcome: Literal["interrupted", "cancelled"]
    reason: str


class TodoUpdate(Written, frozen=True, kw_only=True, tag="todo_update"):
    """The todo list has changed. Each of `todos` has `subject` and `status`."""

    todos: Sequence[Todo]


class CompactAsked(Written, frozen=True, kw_only=True, tag="compact_asked"):
    """A person requested a compaction; the summary must preserve `focus`."""

    kind: CompactionKind
    focus: str


class Compact(Written, frozen=True, kw_only=True, tag="compact"):
    """The conversation was compacted. `kept_from` is the first event that stays.

    `dropped` counts messages or results; the sizes `before` and `after` are in characters.
    """

    kind: Literal["prune", "full", "trim"]
    reason: str
    dropped: int
    kept_from: int
    summary: str
    before: int
    after: int


class SideCall(Written, frozen=True, kw_only=True, tag="side_call"):
    """A model call outside of the conversation begins, for a `purpose` such as summary or memory.

    `dollars` and `tokens` are reserved for it.
    """

    purpose: str
    model: str
    dollars: Cost
    tokens: int


class SideCallUsage(Written, frozen=True, kw_only=True, tag="usage"):
    """A side call has ended. `side_call` is its number. `failed` is its error, or ""."""

    side_call: int
    model: str
    usage: Usage | None
    cost: Cost
    failed: str


class Memory(Written, frozen=True, kw_only=True, tag="memory"):
    """Notes were made of the session up to the event `upto`.

    `kept` is the number of lines of the notes.
    """

    upto: int
    kept: int
    model: str


class FilesChangedElsewhere(
    Written, frozen=True, kw_only=True, tag="files_changed_elsewhere"
):
    """Another program changed files that the model has read."""

    files: Sequence[Change]


class Notice(Written, frozen=True, kw_only=True, tag="notice"):
    """A notice for the user, such as a repaired journal."""

    text: str


class TurnEnd(Written, frozen=True, kw_only=True, tag="turn_end"):
    """The turn has ended."""

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


class ClaimEvidence(Struct, frozen=True):
    given: Evidence
    found: Finding


class Claim(Struct, frozen=True):
    id: str
    claim: str
    required: bool
    state: str
    reason: str
    evidence: Sequence[ClaimEvidence]


class Result(Placed, frozen=True, kw_only=True, tag="result"):
    """The result of a turn; always the last document.

    `session_id` is "" if no session could be opened.
    """

    outcome: Outcome
    reason: str
    text: str
    session_id: str
    model: str
    steps: int
    duration_seconds: float
    usage: Usage
    cost: Cost
    denials: Sequence[Denial]
    files: Sequence[Change]
    warnings: Sequence[str]
    structured: object = UNSET
    plan: WaitingPlan | UnsetType = UNSET
    claims: Sequence[Claim] | UnsetType = UNSET


# Documents about the origin of a session.


class Forked(Written, frozen=True, kw_only=True, tag="forked", rename={"event": "from"}):
    """All lines before this one are a copy of the session `source`."""

    source: str
    event: int


class Imported(Written, frozen=True, kw_only=True, tag="imported"):
    """All lines before this one were imported from a file: the session `source`, now
    `session_id`.
    """

    source: str
    session_id: str
    directory: str
