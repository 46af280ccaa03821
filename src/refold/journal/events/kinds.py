"""What can happen in a session, one small class for each thing.

Three rules keep a journal readable in five years:

* Names are past tense. An event is news, not an order.
* Events carry results, never recipes. Folding them again must not call a
  model, run a tool, read a clock or roll a die.
* A field may be added with a default; none is renamed or removed. What must
  change shape gets a new class.

When it happened, in which turn and by whose hand is the envelope's business
(`codec`); what it means is the fold's (`fold` and the sub-folds beside it). What a
session starts below itself, children and code, is in `child_events`.
"""

from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from refold.journal.events.child_events import (
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildGranted,
    ChildStopped,
    Forked,
    NestedCallMade,
    VariableInjected,
    VariablesRestored,
    VariablesSaved,
)
from refold.values.control import CompactionKind, Control
from refold.values.display import Diff, Shown
from refold.values.live import Live
from refold.values.messages import Image, Message
from refold.values.modes import Effort, Mode, Outcome, Verdict
from refold.values.tools import ToolSpec
from refold.values.usage import NO_LIMIT, NOTHING, Budget, RunLimits, Usage

LAST = "last"  # in place of a session: the newest of this directory


class SessionStarted(Struct, frozen=True):
    """The first line. `refold` is the version that wrote it."""

    directory: str
    version: str = ""
    id: str = ""  # the session's own, as providers are told it
    no_memory: bool = False  # nothing said from here on becomes a note
    roots: tuple[str, ...] = ()  # what else belongs to its workspace, links followed
    limits: RunLimits = NOTHING  # rules and bounds of its command line, until it is left


class SessionResumed(Struct, frozen=True):
    """Another process took the pen."""

    version: str = ""
    no_memory: bool = False  # nothing said from here on becomes a note
    directory: str = ""  # where it goes on, if that is another
    roots: tuple[str, ...] | None = (
        None  # the other directories from here on; null: as before
    )
    limits: RunLimits = (
        NOTHING  # rules and bounds of the command line, instead of those before
    )


class JournalRepaired(Struct, frozen=True):
    """The journal was found damaged at its end, and this is what is lost."""

    lost: str


class Said(Struct, frozen=True):
    """Words came in. They are not a turn: mail and schedules start those too."""

    text: str
    sender: str = "person"
    when: Literal["now", "next"] = "now"  # into the running turn, or after it
    client_key: str = ""  # the same key twice is the same words sent twice
    images: tuple[Image, ...] = ()
    # What the person wrote of them, where a template or a pipe brought the rest; null: all.
    typed: str | None = None


class TurnStarted(Struct, frozen=True):
    cause: int  # the seq of what asked for it
    why: Literal["message", "continue"] = "message"


class SystemPromptSet(Struct, frozen=True):
    """What the model is told besides the talk. Recorded again when it changes."""

    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""  # as a person names it: provider/model
    window: int = 0  # tokens; 0: unknown
    max_output: int = 0  # tokens of one answer; 0: as the provider has it
    effort: Effort = ""
    schema: Raw = Raw(b"null")  # that the final answer has to match
    parts: tuple[tuple[str, int], ...] = ()  # what `system` is made of: names, characters
    agent: str = ""  # whose prompt and tools these are


class Delivered(Struct, frozen=True):
    """These words are now part of what the model hears."""

    messages: tuple[int, ...]


class ModelAsked(Struct, frozen=True):
    """A step begins: the model is asked. Without an answer, asking is repeated."""

    notes: tuple[str, ...] = ()
    tools: bool = True
    policies: tuple[str, ...] = ()  # the policies whose notes these are
    dollars: float | None = None  # set aside for the answer; None: its price is not known
    tokens: int = 0  # the same in tokens


class ModelAnswered(Struct, frozen=True):
    """A whole answer, or the words that came before a stop, without calls."""

    message: Message
    usage: Usage = Usage()
    stop: Literal["end", "calls", "length", "refused"] = "end"
    model: str = ""
    partial: bool = False
    cost: float | None = None  # US dollars; None: unknown, which is not zero
    refusal: str = ""  # what a provider said of a refusal
    served_by: str = ""  # the provider's own name for who answered, where it is another


class ModelFailed(Struct, frozen=True):
    """No answer came, or an empty one. `shown` is what a person had already read of it."""

    reason: str
    kind: str = ""  # the class of the error
    partial_text: str = ""
    usage: Usage | None = None  # where a provider told it: that has to be paid for, too
    model: str = ""
    cost: float | None = None


class RequestLogged(Struct, frozen=True):
    """A model call exactly as it went over the wire. Recorded only on request.

    The request begins with the first `same` bytes of the last one with the same `to`;
    the rest of it is the blob `request`. `answer` is a blob, too; "" where none came.
    """

    target: (
        str  # "POST https://…", a command line, or a file or slot that it takes words from
    )
    request: str
    response: str = ""
    same_prefix: int = 0


class AnswerRejected(Struct, frozen=True):
    """An answer did not have the shape that was asked for; the model reads `notes`."""

    notes: tuple[str, ...]


class Judged(Struct, frozen=True):
    """The rules have spoken on a call that an answer holds."""

    call_id: str
    verdict: Verdict
    rule: str = ""  # the rule that decided, as it is written
    reason: str = ""
    real_path: str = ""  # the file it was judged for, links followed
    source: str = ""  # where that rule was written
    once: bool = False  # a person may allow this one call, and no rule like it
    hash: str = ""  # of the call as the model made it, and of where its paths lead
    changes: tuple[Diff, ...] = ()  # what it would do to files, as a person is shown it


class Answered(Struct, frozen=True):
    """A person decided on a call the rules were not sure of. The first wins."""

    call_id: str
    allowed: bool
    reason: str = ""  # why not: goes to the model
    answers: tuple[str, ...] = ()  # to the questions of `ask_user`, in their order


class Granted(Struct, frozen=True):
    """A person allows a kind of call for the rest of this session."""

    rule: str


class Started(Struct, frozen=True):
    """Written before the call is done: after a crash it may have had its effect."""

    call_id: str


class Ended(Struct, frozen=True):
    """A call came to this. `text` is all the model sees of it.

    Where it was cut, `whole` names the blob with all of it. `seen` says which
    files the model was shown, as (path, sha256 of the content).
    """

    call_id: str
    outcome: Literal["done", "failed", "refused", "stopped", "unknown"]
    text: str
    shown: tuple[Shown, ...] = ()
    file_hashes: tuple[tuple[str, str], ...] = ()
    full_blob: str = ""
    control: Control | None = None
    images: tuple[Image, ...] = ()


class Rewound(Struct, frozen=True):
    """The talk is again what it was at `mark`. Leaves a mark itself: undo."""

    mark: int


class Stopped(Struct, frozen=True):
    """Somebody wants this turn to end. It ends when its calls are settled."""

    reason: str
    outcome: Literal["interrupted", "cancelled"] = "interrupted"


class TurnEnded(Struct, frozen=True):
    outcome: Outcome
    reason: str = ""


class ModeChanged(Struct, frozen=True):
    """A person chose how much may run unasked."""

    mode: Mode


class PlanAnswered(Struct, frozen=True):
    """A person judged the plan that ended a call. `text` is the plan as they edited it.

    What they want to say of it is `Said`; approved, the mode is as before the plan.
    """

    plan: int  # the seq of the end of the call that made it
    approved: bool
    text: str = ""


class Checkpointed(Struct, frozen=True):
    """The files as they were then: for each root of the workspace, its snapshot.

    `left_out` are files too large to be kept. `changed` is what became different since
    the one before, as (real path, "created", "changed" or "deleted").
    """

    trees: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()


class FilesRestored(Struct, frozen=True):
    """The files are again as at `checkpoint`. `before` says how they were until then."""

    checkpoint: int  # the seq of a `Checkpointed`
    before: int  # and of the one made just before: going back there is the undo
    files: int = 0  # how many were changed


class CompactionRequested(Struct, frozen=True):
    """A person wants the talk told shorter. `focus` says what must not get lost."""

    kind: CompactionKind = "full"
    focus: str = ""


class Compacted(Struct, frozen=True):
    """From here on the model is told the talk shorter. The journal keeps it whole.

    `results` are what stands instead of the results of these calls. Unless it is a
    "prune", all before the message of `kept` is left out, and the model reads `carried`
    (what the journal knows: words, todos, plan, files) and `summary` instead. "trim": no
    summary could be made, and `reason` says why.
    """

    kind: Literal["prune", "full", "trim"]
    reason: str = ""
    pruned: tuple[tuple[str, str], ...] = ()  # the id of a call, and the line
    first_kept: int = 0  # the seq of the first message that stays; 0: none does
    preserved: str = ""
    summary: str = ""
    dropped: int = 0  # messages, or results of a "prune"
    size_before: int = 0  # characters of the talk
    size_after: int = 0
    focus: str = ""  # what somebody did not want to get lost


class AgentChosen(Struct, frozen=True):
    """A person chose the agent, by name. Holds from the next turn.

    `then` is who comes after it, once a plan of its making is approved.
    """

    agent: str
    after_plan: str = ""


class ExternalEditsFound(Struct, frozen=True):
    """Files that the model knew, and that somebody else changed or deleted since."""

    files: tuple[tuple[str, str], ...]  # real path, "changed" or "deleted"


class Imported(Struct, frozen=True):
    """All lines up to here came from a file. They are history, and nothing of them goes on.

    What was under way there is not known here; what a person allowed or chose there was
    not said here. It goes on in `directory`.
    """

    source: str  # the id that it has in the file
    id: str = ""  # the one that it has here
    directory: str = ""


class MemoryExtracted(Struct, frozen=True):
    """Memory was made of this session, up to the event `upto`; `kept` notes came of it."""

    up_to: int
    notes: int = 0
    model: str = ""


class ModelChosen(Struct, frozen=True):
    """A person chose the model, as provider/model. Holds from the next turn."""

    model: str


class EffortChosen(Struct, frozen=True):
    """A person chose how hard the model thinks. Holds from the next turn."""

    effort: Effort


class Renamed(Struct, frozen=True):
    """The session has this name from now on; "": none. Another may have the same."""

    name: str


class Titled(Struct, frozen=True):
    """A model found this title for what was said, when the session had been left."""

    title: str


class Tagged(Struct, frozen=True):
    """These are its tags from now on, and no others."""

    tags: tuple[str, ...]


class Reserved(Struct, frozen=True):
    """A model is asked beside the talk, and so much is set aside for it."""

    purpose: str  # "summary", "memory", "title", "leaf"
    model: str
    dollars: float | None = None  # None: the price is not known
    tokens: int = 0
    # Of a leaf: its number in this session, the call whose code asks, what makes it the
    # same question (a hash, and how often that was asked before), and its first words.
    leaf: int = 0
    call_id: str = ""
    key: str = ""
    n: int = 0
    prompt: str = ""


class Settled(Struct, frozen=True):
    """What that came to. `failed` says why nothing came of it."""

    reserved: int  # the seq of the `Reserved`
    usage: Usage | None = None
    model: str = ""
    cost: float | None = None
    failed: str = ""
    # Of a leaf: what it answered, or the blob that holds it; and whether nobody had to be
    # asked, for the answer was remembered.
    text: str = ""
    full_blob: str = ""
    cached: bool = False


class BudgetSet(Struct, frozen=True):
    """What a turn may use up, from now on in this session. Said by a person, or by a parent.

    `last`: whoever gave it has no more to give; `left` is the share of theirs that is left.
    """

    budget: Budget = NO_LIMIT
    final: bool = False
    share_left: float = 1.0


class StepLimitSet(Struct, frozen=True):
    """So many answers one turn may have, from now on in this session. Said by a person."""

    steps: int = 0  # 0: as the settings say


class Noted(Struct, frozen=True):
    """A plug-in's own news. We keep it; the plug-in folds it."""

    name: str
    data: Raw


class Unknown(Struct, frozen=True):
    """News of a version that is not ours. Kept raw, folded as nothing."""

    kind: str
    data: Raw


Event: TypeAlias = (
    SessionStarted | SessionResumed | JournalRepaired
    | Said | TurnStarted | SystemPromptSet | Delivered | ModelAsked | ModelAnswered | ModelFailed
    | RequestLogged | AnswerRejected | Judged | Answered | Granted | Started | Ended
    | Rewound | Stopped | TurnEnded | ModeChanged | PlanAnswered
    | CompactionRequested | Compacted | Reserved | Settled | BudgetSet | StepLimitSet | AgentChosen
    | ExternalEditsFound | Imported | MemoryExtracted
    | ChildBorn | ChildGranted | ChildAsked | ChildAnswered | ChildStopped | ChildEnded
    | NestedCallMade | VariableInjected | VariablesSaved | VariablesRestored | Forked
    | Checkpointed | FilesRestored | ModelChosen
    | EffortChosen | Renamed | Tagged | Titled | Noted | Unknown
)  # fmt: skip


class Entry(Struct, frozen=True):
    """An event at its place in the journal. This is what gets folded."""

    seq: int
    event: Event
    at: float = 0.0  # seconds since 1970, by the writer's clock; order is seq's
    epoch: int = 0  # which writer; see `store.Store.lease`
    turn: int = 0  # the seq of its TurnStarted; 0 between turns
    by: str = ""  # who: "person", "agent", "rules", "policy step_limit"
    cause: int = 0  # the seq of what led to it; 0: nothing in here


class Frame(Struct, frozen=True):
    """`n` numbers the live news after event `seq`; 0 is the event itself."""

    seq: int
    n: int
    item: Entry | Live
