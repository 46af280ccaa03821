"""The kinds of events: one small class for each thing that can happen in a session.

Three rules keep a journal readable in five years:

* Names are past tense. An event reports what happened; it does not order anything.
* Events carry results, and not how to compute them: folding calls no model and no tool, and
  reads no clock.
* A field may be added with a default; none is renamed or removed. A new shape is a new class.

`codec` has the envelope of a line. More kinds are in `child_events` and `setting_events`.
"""

from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from refold.journal.events.child_events import (
    BackgroundEnded,
    BackgroundStarted,
    Checkpointed,
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildGranted,
    ChildStopped,
    FilesRestored,
    FileUploaded,
    Forked,
    HookRan,
    MailSent,
    NestedCallMade,
    PlaceRebuilt,
    TeammateIdled,
    TeamsSwitched,
    TerminalEvent,
    TracingSwitched,
    VariableInjected,
    VariablesRestored,
    VariablesSaved,
    WorktreeEntered,
    WorktreeLeft,
)
from refold.journal.events.setting_events import (
    AgentChosen,
    BudgetSet,
    EffortChosen,
    ModeChanged,
    ModelChosen,
    Renamed,
    StepLimitSet,
    Tagged,
    Titled,
)
from refold.values.control import CompactionKind, Control
from refold.values.display import Diff, Shown
from refold.values.live import Live
from refold.values.messages import Image, Message
from refold.values.modes import Effort, Outcome, Verdict
from refold.values.tools import ToolSpec
from refold.values.usage import NO_RUN_LIMITS, RunLimits, Usage

LAST_SESSION = "last"  # in place of a session: the newest of this directory


class SessionStarted(Struct, frozen=True):
    """The first line of a journal. `version` is that of refold."""

    directory: str
    version: str = ""
    id: str = ""  # the session id that is sent to providers
    no_memory: bool = False  # no notes are made of what follows
    roots: tuple[str, ...] = ()  # more directories of the workspace, links resolved
    # The rules and limits from the command line of this run.
    limits: RunLimits = NO_RUN_LIMITS
    # The session whose claims this one checks; such a session is never "last".
    checks: str = ""
    schedule: int = 0  # the schedule of which this session is a run


class SessionResumed(Struct, frozen=True):
    """Another process opened the session.

    This is recorded only if a property of the session changed, or if something that the earlier
    process had begun must be settled.
    """

    version: str = ""
    no_memory: bool = False  # no notes are made of what follows
    directory: str = ""  # the new working directory, if it changed
    roots: tuple[str, ...] | None = None  # more directories; null: as before
    limits: RunLimits = NO_RUN_LIMITS  # replaces the rules and limits of the last run


class JournalRepaired(Struct, frozen=True):
    """The end of the journal was damaged. `lost` says what was cut off."""

    lost: str


class HolderEnded(Struct, frozen=True):
    """The process that had the session open was killed by `--steal`."""

    pid: int
    host: str
    command: str  # its command line, shortened
    reason: str = ""


class Said(Struct, frozen=True):
    """A message was received. Not every turn begins with one: background results start turns,
    too.
    """

    text: str
    sender: str = "person"
    when: Literal["now", "next"] = "now"  # in the running turn, or after it
    client_key: str = ""  # a second message with the same key is a duplicate
    images: tuple[Image, ...] = ()
    # The part that the user typed, if a template or a pipe added the rest; null: all of it.
    typed: str | None = None
    # It may begin a turn, although neither the user nor a parent sent it.
    wakes: bool = False
    outside: bool = False  # it contains text from outside, or may


class TurnStarted(Struct, frozen=True):
    cause: int  # the event number that caused the turn
    why: Literal["message", "continue"] = "message"


class SystemPromptSet(Struct, frozen=True):
    """The system prompt, tools and options that are sent with the conversation.
    Recorded again when one of them changes.
    """

    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""  # as provider/model
    window: int = 0  # context window in tokens; 0: unknown
    max_output: int = 0  # tokens of one response; 0: the provider's default
    effort: Effort = ""
    schema: Raw = Raw(b"null")  # the JSON Schema of the final answer
    parts: tuple[tuple[str, int], ...] = ()  # parts of `system`: name and characters
    agent: str = ""  # the agent that has this prompt and these tools
    temperature: float | None = None  # null: the provider's default


class Delivered(Struct, frozen=True):
    """These messages were added to the conversation."""

    messages: tuple[int, ...]


class ModelAsked(Struct, frozen=True):
    """A step begins with a model call. If no response follows, the call is repeated."""

    notes: tuple[str, ...] = ()
    tools: bool = True
    policies: tuple[str, ...] = ()  # the policies that added the notes
    dollars: float | None = None  # reserved for the response; None: price unknown
    tokens: int = 0  # reserved for the response


class ModelAnswered(Struct, frozen=True):
    """A complete response. If the turn was stopped, it is the text received until then,
    without calls.
    """

    message: Message
    usage: Usage = Usage()
    stop: Literal["end", "calls", "length", "refused"] = "end"
    model: str = ""
    partial: bool = False
    cost: float | None = None  # US dollars; None: unknown, which is not zero
    refusal: str = ""  # the provider's explanation of a refusal
    # The model that responded, according to the provider, if it is not `model`.
    served_by: str = ""
    # Seconds until the first piece; None: the response arrived in one piece.
    first_piece: float | None = None
    # `stop` is "length" because the provider paused, not because of the output limit.
    paused: bool = False
    warning: str = ""  # a notice for the user about how the response was made
    # Tools that the provider refused; `model` does not get them any more.
    refused_tools: tuple[str, ...] = ()


class ModelFailed(Struct, frozen=True):
    """No response was received, or an empty response. The user has seen `partial_text`.

    A `dropped` response is requested again; its text and calls never enter the conversation.
    """

    reason: str
    kind: str = ""  # the class of the error
    partial_text: str = ""
    usage: Usage | None = None  # if the provider reported it, because it is billed, too
    model: str = ""
    cost: float | None = None
    dropped: bool = False  # the turn continues with the same request


class RequestLogged(Struct, frozen=True):
    """The bytes of a model call, as sent and received.

    Recorded if the setting `log_requests` or a `TracingSwitched` switches recording on.

    The first `same_prefix` bytes of the request are those of the last request to the same
    `target`; the blob `request` has the rest. The blob `response` is "" if no response was
    received.
    """

    target: str  # "POST https://…", a command line, or the file of a scripted model
    request: str
    response: str = ""
    same_prefix: int = 0


class AnswerRejected(Struct, frozen=True):
    """A response that would have ended the turn was rejected. `notes` say why, for the
    model.
    """

    notes: tuple[str, ...]


class Judged(Struct, frozen=True):
    """The permission rules have decided on a call."""

    call_id: str
    verdict: Verdict
    rule: str = ""  # the rule that decided, as written
    reason: str = ""
    real_path: str = ""  # the path that was judged, links resolved
    source: str = ""  # the file or flag of that rule
    once: bool = False  # the user may allow only this call, and not by a rule
    hash: str = ""  # hash of the call as the model made it, and of the targets of its paths
    changes: tuple[Diff, ...] = ()  # what it would do to files, as the user is shown it
    outside: bool = False  # asked because the model has read text from outside


class Answered(Struct, frozen=True):
    """The user decided on a call. The first decision counts."""

    call_id: str
    allowed: bool
    reason: str = ""  # why it was refused, for the model
    answers: tuple[str, ...] = ()  # to the questions of `ask_user`, in order


class Granted(Struct, frozen=True):
    """The user allows calls that match `rule` for the rest of this session."""

    rule: str


class Started(Struct, frozen=True):
    """A call is about to be executed.

    If a crash follows, the call may have had its effect.
    """

    call_id: str


class Ended(Struct, frozen=True):
    """The result of a call. `text` is all that the model sees of it.

    If `text` was cut, the blob `full_blob` has the whole text. `file_hashes` are the files that
    the model was shown, as (path, sha256 of the content).
    """

    call_id: str
    outcome: Literal["done", "failed", "refused", "stopped", "unknown"]
    text: str
    shown: tuple[Shown, ...] = ()
    file_hashes: tuple[tuple[str, str], ...] = ()
    full_blob: str = ""
    control: Control | None = None
    images: tuple[Image, ...] = ()
    cached: bool = False  # an earlier result of the same call; its file is unchanged
    outside: bool = False  # `text` is from outside: a web page, an MCP server


class Rewound(Struct, frozen=True):
    """The conversation is restored to its state just before the event `mark`.

    A rewind to this event undoes that.
    """

    mark: int


class MessageEdited(Struct, frozen=True):
    """The user changed a message of the conversation, or deleted it (`text` is null).

    A rewind to this event undoes that. The journal still has the original.
    """

    message: int  # the seq of its `Said`, or of the `ModelAnswered`
    text: str | None = None


class MessageWithdrawn(Struct, frozen=True):
    """The user withdrew a message before it was delivered."""

    message: int  # the seq of its `Said`


class Stopped(Struct, frozen=True):
    """The turn was asked to end. It ends when its calls have ended."""

    reason: str
    outcome: Literal["interrupted", "cancelled"] = "interrupted"


class TurnEnded(Struct, frozen=True):
    outcome: Outcome
    reason: str = ""


class PlanAnswered(Struct, frozen=True):
    """The user approved or rejected a plan. `text` is the plan as the user edited it.

    The user's comment on the plan is recorded as `Said`.
    """

    plan: int  # the seq of the `Ended` that contains it
    approved: bool
    text: str = ""


class CompactionRequested(Struct, frozen=True):
    """The user requested a compaction, or withdrew it.

    The summary must preserve `focus`.
    """

    kind: CompactionKind = "full"
    focus: str = ""
    withdrawn: bool = False


class Compacted(Struct, frozen=True):
    """The conversation was compacted. The journal still has all of it.

    `pruned` are lines that replace results of calls. Unless `kind` is "prune", messages before
    `first_kept` are replaced by `preserved` (from the journal: messages of the user, todos,
    plan, files) and `summary`. The kind "trim" means that no summary could be made; `reason`
    says why.
    """

    kind: Literal["prune", "full", "trim"]
    reason: str = ""
    pruned: tuple[tuple[str, str], ...] = ()  # (call id, line)
    first_kept: int = 0  # the seq of the first message that stays; 0: none
    preserved: str = ""
    summary: str = ""
    dropped: int = 0  # number of messages, or of results of a "prune"
    size_before: int = 0  # characters of the conversation
    size_after: int = 0
    focus: str = ""  # what the summary had to preserve


class ExternalEditsFound(Struct, frozen=True):
    """Files that the model has read and that another program has changed since."""

    files: tuple[tuple[str, str], ...]  # real path, "changed" or "deleted"


class InstructionsFound(Struct, frozen=True):
    """Instructions of subfolders, found when a file in a subfolder was first read or
    edited.
    """

    files: tuple[tuple[str, str], ...] = ()  # (real path, text with its imports)
    notices: tuple[str, ...] = ()  # sentences for the user: what was left out


class Imported(Struct, frozen=True):
    """All lines up to this one were imported. Nothing in these lines is resumed.

    Calls that were open end as unknown. Grants and choices in these lines have no effect.
    """

    source: str  # the session id in the imported file
    id: str = ""  # the session id in this home
    directory: str = ""  # the working directory in this home


class MemoryExtracted(Struct, frozen=True):
    """Notes were made of this session, up to the event `up_to`."""

    up_to: int
    notes: int = 0  # number of notes
    model: str = ""


class Reserved(Struct, frozen=True):
    """A model call outside the conversation begins, and its budget is reserved."""

    purpose: str  # one of "summary", "memory", "title", "leaf", "sampling"
    model: str
    dollars: float | None = None  # None: the price is not known
    tokens: int = 0
    # Of a leaf: its number in the session, its call, a hash of the question, how often the
    # question was asked before, and the beginning of the question.
    leaf: int = 0
    call_id: str = ""
    key: str = ""
    n: int = 0
    prompt: str = ""


class Settled(Struct, frozen=True):
    """A model call outside the conversation has ended. `failed` says why it has no result, or
    "".
    """

    reserved: int  # the seq of its `Reserved`
    usage: Usage | None = None
    model: str = ""
    cost: float | None = None
    failed: str = ""
    # Of a leaf: its answer, the blob with a long answer, and whether the answer was cached.
    text: str = ""
    full_blob: str = ""
    cached: bool = False


class Noted(Struct, frozen=True):
    """An event of a plug-in. The journal stores it; the plug-in folds it."""

    name: str
    data: Raw


class Unknown(Struct, frozen=True):
    """An event of another version of refold.

    It is stored unchanged, and the fold ignores it.
    """

    kind: str
    data: Raw


Event: TypeAlias = (
    SessionStarted | SessionResumed | JournalRepaired | HolderEnded
    | Said | TurnStarted | SystemPromptSet | Delivered | ModelAsked | ModelAnswered | ModelFailed
    | RequestLogged | AnswerRejected | Judged | Answered | Granted | Started | Ended
    | Rewound | MessageEdited | MessageWithdrawn | Stopped | TurnEnded | ModeChanged | PlanAnswered
    | CompactionRequested | Compacted | Reserved | Settled | BudgetSet | StepLimitSet | AgentChosen
    | ExternalEditsFound | InstructionsFound | Imported | MemoryExtracted | TeamsSwitched | TracingSwitched | MailSent | TeammateIdled | ChildBorn | ChildGranted | ChildAsked | ChildAnswered | ChildStopped | ChildEnded
    | NestedCallMade | VariableInjected | VariablesSaved | VariablesRestored | Forked
    | BackgroundStarted | BackgroundEnded | WorktreeEntered | WorktreeLeft | Checkpointed | FilesRestored | FileUploaded | PlaceRebuilt | ModelChosen | HookRan
    | EffortChosen | Renamed | Tagged | Titled | TerminalEvent | Noted | Unknown
)  # fmt: skip


class Entry(Struct, frozen=True):
    """An event with its envelope: what the fold reads."""

    seq: int
    event: Event
    at: float = 0.0  # seconds since 1970, by the writer's clock; `seq` is the order
    epoch: int = 0  # the number of the writer: `store.port.Store.lease`
    turn: int = 0  # the seq of its TurnStarted; 0 between turns
    by: str = ""  # its author: "person:ada", "agent", "rules", "policy step_limit"
    cause: int = 0  # the seq of the event that led to it; 0: none

    @property
    def person(self) -> str | None:
        """The person who caused the event, "" if unnamed; None if no person did."""
        kind, _, name = self.by.partition(":")
        return name if kind == "person" else None


class Frame(Struct, frozen=True):
    """What a watcher of a session receives: an event, or a delta between two events."""

    seq: int
    n: int  # numbers the deltas after event `seq`; 0 is the event itself
    item: Entry | Live
