"""The kinds of events: one small class for each thing that can happen in a session.

Three rules keep a journal readable in five years:

* Names are past tense. An event reports what happened; it does not order anything.
* Events carry results, never recipes: folding calls no model, tool, clock or chance.
* A field may be added with a default; none is renamed or removed. A new shape is a new class.

`codec` has the envelope of a line. More kinds are in `child_events`.
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
from refold.values.control import CompactionKind, Control
from refold.values.display import Diff, Shown
from refold.values.live import Live
from refold.values.messages import Image, Message
from refold.values.modes import Effort, Format, Mode, Outcome, Verdict
from refold.values.tools import ToolSpec
from refold.values.usage import NO_LIMIT, NO_RUN_LIMITS, Budget, RunLimits, Usage

LAST_SESSION = "last"  # in place of a session: the newest of this directory


class SessionStarted(Struct, frozen=True):
    """The first line of a journal. `version` is that of refold."""

    directory: str
    version: str = ""
    id: str = ""  # the session id that is sent to providers
    no_memory: bool = False  # no notes are made of what follows
    roots: tuple[str, ...] = ()  # more directories of the workspace, links resolved
    limits: RunLimits = NO_RUN_LIMITS  # rules and limits from the command line of this run
    checks: str = ""  # the session whose claims this one checks; then it is never "last"
    schedule: int = 0  # the schedule that it is a run of


class SessionResumed(Struct, frozen=True):
    """Another process opened the session, and that changed something, or ends something."""

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
    """A message came in. It is not a turn: background results start turns, too."""

    text: str
    sender: str = "person"
    when: Literal["now", "next"] = "now"  # in the running turn, or after it
    client_key: str = ""  # a second message with the same key is a duplicate
    images: tuple[Image, ...] = ()
    # The part that the user typed, if a template or a pipe added the rest; null: all of it.
    typed: str | None = None
    wakes: bool = False  # it may begin a turn, though neither the user nor a parent sent it
    outside: bool = False  # it holds text from outside, or may


class TurnStarted(Struct, frozen=True):
    cause: int  # the seq of the event that asked for the turn
    why: Literal["message", "continue"] = "message"


class SystemPromptSet(Struct, frozen=True):
    """What is sent with the conversation. Recorded again when it changes."""

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
    """These messages are part of the conversation from here on."""

    messages: tuple[int, ...]


class ModelAsked(Struct, frozen=True):
    """A step begins with a model call. If no response follows, the call is repeated."""

    notes: tuple[str, ...] = ()
    tools: bool = True
    policies: tuple[str, ...] = ()  # the policies that added the notes
    dollars: float | None = None  # reserved for the response; None: price unknown
    tokens: int = 0  # reserved for the response


class ModelAnswered(Struct, frozen=True):
    """A complete response, or the text that arrived before a stop, without calls."""

    message: Message
    usage: Usage = Usage()
    stop: Literal["end", "calls", "length", "refused"] = "end"
    model: str = ""
    partial: bool = False
    cost: float | None = None  # US dollars; None: unknown, which is not zero
    refusal: str = ""  # the provider's explanation of a refusal
    served_by: str = ""  # the model that the provider says it used, if it is another
    first_piece: float | None = None  # seconds until it began; None: it came as a whole
    paused: bool = False  # `stop` is "length": by the provider, and not by the output limit
    warning: str = ""  # what the user should know of how it was made
    refused_tools: tuple[str, ...] = ()  # by the provider; `model` gets them no more


class ModelFailed(Struct, frozen=True):
    """No response came, or an empty one. `partial_text` was already shown to the user.

    A `dropped` response is asked for again; its text and calls never enter the conversation.
    """

    reason: str
    kind: str = ""  # the class of the error
    partial_text: str = ""
    usage: Usage | None = None  # if the provider reported it: it is billed, too
    model: str = ""
    cost: float | None = None
    dropped: bool = False  # the turn continues with the same request


class RequestLogged(Struct, frozen=True):
    """A model call as it was sent. Recorded if `log_requests` is on, or `TracingSwitched` says so.

    The request begins with the first `same_prefix` bytes of the last one with the same
    `target`; the blob `request` has the rest. The blob `response` is "" if none came.
    """

    target: str  # "POST https://…", a command line, or the file of a scripted model
    request: str
    response: str = ""
    same_prefix: int = 0


class AnswerRejected(Struct, frozen=True):
    """An answer did not match its schema. `notes` tell the model what to correct."""

    notes: tuple[str, ...]


class Judged(Struct, frozen=True):
    """The permission rules have decided on a call."""

    call_id: str
    verdict: Verdict
    rule: str = ""  # the rule that decided, as written
    reason: str = ""
    real_path: str = ""  # the path that was judged, links resolved
    source: str = ""  # the file or flag of that rule
    once: bool = False  # the user may allow this call only, and not by a rule
    hash: str = ""  # of the call as the model made it, and of where its paths lead
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
    """Written before the call is executed: after a crash it may have had its effect."""

    call_id: str


class Ended(Struct, frozen=True):
    """The result of a call. `text` is all that the model sees of it.

    If it was cut, the blob `full_blob` has all of it. `file_hashes` are the files that
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
    """The conversation is what it was at `mark`. Leaves a mark itself, for undo."""

    mark: int


class MessageEdited(Struct, frozen=True):
    """The user changed a message of the conversation, or deleted it (`text` is null).

    Leaves a mark itself, for undo. The journal still has the original.
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


class ModeChanged(Struct, frozen=True):
    """The user chose the permission mode."""

    mode: Mode


class PlanAnswered(Struct, frozen=True):
    """The user approved or rejected a plan. `text` is the plan as the user edited it.

    A comment on it is recorded as `Said`. After approval the mode is that before the plan.
    """

    plan: int  # the seq of the `Ended` that holds it
    approved: bool
    text: str = ""


class CompactionRequested(Struct, frozen=True):
    """The user asked to compact, or withdrew that. `focus` says what the summary must preserve."""

    kind: CompactionKind = "full"
    focus: str = ""
    withdrawn: bool = False


class Compacted(Struct, frozen=True):
    """The conversation was compacted. The journal still has all of it.

    `pruned` are lines that replace results of calls. Unless `kind` is "prune", messages
    before `first_kept` are replaced by `preserved` (from the journal: messages of the
    user, todos, plan, files) and `summary`. "trim": no summary could be made; `reason`
    says why.
    """

    kind: Literal["prune", "full", "trim"]
    reason: str = ""
    pruned: tuple[tuple[str, str], ...] = ()  # the id of a call, and the line
    first_kept: int = 0  # the seq of the first message that stays; 0: none
    preserved: str = ""
    summary: str = ""
    dropped: int = 0  # number of messages, or of results of a "prune"
    size_before: int = 0  # characters of the conversation
    size_after: int = 0
    focus: str = ""  # what the summary had to preserve


class AgentChosen(Struct, frozen=True):
    """The user chose the agent, from the next turn on.

    `after_plan` is the agent that carries out an approved plan of this one, `preset` the prompt
    of the agent main; "": as before.
    """

    agent: str
    after_plan: str = ""
    preset: str = ""


class ExternalEditsFound(Struct, frozen=True):
    """Files that the model has read and that another program has changed since."""

    files: tuple[tuple[str, str], ...]  # real path, "changed" or "deleted"


class InstructionsFound(Struct, frozen=True):
    """Instructions of folders below, found when a file there was first read or edited."""

    files: tuple[tuple[str, str], ...] = ()  # real path, and text with what it imports
    notices: tuple[str, ...] = ()  # sentences for the user: what was left out


class Imported(Struct, frozen=True):
    """All lines up to here were imported. They are history; nothing of them is resumed.

    Calls that were open there stay unknown, and what a user allowed or chose there does
    not hold here.
    """

    source: str  # the session id in the imported file
    id: str = ""  # the session id here
    directory: str = ""  # the working directory here


class MemoryExtracted(Struct, frozen=True):
    """Notes were made of this session, up to the event `up_to`."""

    up_to: int
    notes: int = 0  # number of notes
    model: str = ""


class ModelChosen(Struct, frozen=True):
    """The user chose the model, as provider/model, from the next turn on.

    `format` is how the conversation is sent to it; "": as before.
    """

    model: str
    format: Format | Literal[""] = ""


class EffortChosen(Struct, frozen=True):
    """The user chose the reasoning effort, from the next turn on."""

    effort: Effort


class Renamed(Struct, frozen=True):
    """The user named the session; "" removes the name. Names need not be unique."""

    name: str


class Titled(Struct, frozen=True):
    """A model wrote this title after the first turn, or after the session had been left."""

    title: str


class Tagged(Struct, frozen=True):
    """The user set the tags of the session. They replace those before."""

    tags: tuple[str, ...]


class Reserved(Struct, frozen=True):
    """A model call outside the conversation begins, and its budget is reserved."""

    purpose: str  # "summary", "memory", "title", "leaf", "sampling"
    model: str
    dollars: float | None = None  # None: the price is not known
    tokens: int = 0
    # Of a leaf: its number here, its call, a hash of the question, times asked before, its start.
    leaf: int = 0
    call_id: str = ""
    key: str = ""
    n: int = 0
    prompt: str = ""


class Settled(Struct, frozen=True):
    """A model call outside the conversation has ended. `failed`: why it has no result."""

    reserved: int  # the seq of its `Reserved`
    usage: Usage | None = None
    model: str = ""
    cost: float | None = None
    failed: str = ""
    # Of a leaf: its answer, the blob with all of a long one, and whether it was cached.
    text: str = ""
    full_blob: str = ""
    cached: bool = False


class BudgetSet(Struct, frozen=True):
    """The user, or the parent of a subagent, set the budget of a turn."""

    budget: Budget = NO_LIMIT
    final: bool = False  # the parent has no more to give
    share_left: float = 1.0  # the share of the parent's own budget that is left


class StepLimitSet(Struct, frozen=True):
    """The user set the number of model responses in one turn."""

    steps: int = 0  # 0: as in the settings


class Noted(Struct, frozen=True):
    """An event of a plug-in. The journal keeps it; the plug-in folds it."""

    name: str
    data: Raw


class Unknown(Struct, frozen=True):
    """An event of another version of refold. Kept as it is, and ignored by the fold."""

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
    by: str = ""  # who: "person:ada", "agent", "rules", "policy step_limit"
    cause: int = 0  # the seq of the event that led to it; 0: none

    @property
    def person(self) -> str | None:
        """The person who caused the event, "" if unnamed. None: no person did."""
        kind, _, name = self.by.partition(":")
        return name if kind == "person" else None


class Frame(Struct, frozen=True):
    """What a watcher of a session receives: an event, or a delta between two events."""

    seq: int
    n: int  # numbers the deltas after event `seq`; 0 is the event itself
    item: Entry | Live
