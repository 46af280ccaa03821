"""The kinds of events about everything besides the conversation itself.

They concern subagents, code that a model writes, hooks, background commands, worktrees,
checkpoints, terminals in the web page, and what a user switches on or off for a session. The
rules of `kinds` apply.
"""

from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from refold.values.display import Diff, HostAttempt
from refold.values.messages import ToolCall
from refold.values.modes import HookEvent, Outcome
from refold.values.usage import NO_LIMIT, Budget, Spent


class Denial(Struct, frozen=True):
    """A call that a rule or the user refused. `reason` is what the model read."""

    call: ToolCall
    reason: str


class ChildBorn(Struct, frozen=True):
    """A call starts a subagent. Written before the subagent's journal is created.

    `key` and `n` distinguish the subagents of one call: a hash of the task, and how often the
    same task was started before. `grant` is its budget, which counts as used until the subagent
    ends. If `background`, the call does not wait, and the result arrives as a message.
    """

    child: str  # "child-1": its name below this session
    call_id: str
    agent: str
    task: str
    key: str = ""
    n: int = 0
    level: str = ""  # the role of its model; "": the agent's default
    background: bool = False
    grant: Budget = NO_LIMIT
    directory: str = ""  # its working directory, if it is not the parent's
    branch: str = ""  # of a git working tree of its own
    base: str = ""  # the commit at which that branch begins
    attached: str = ""  # the session whose Python variables it starts with
    title: str = ""  # a few words for the user
    teammate: str = ""  # its name in the team; it waits for mail when it has nothing to do


class TeamsSwitched(Struct, frozen=True):
    """The user decided whether the agent may lead a team, from the next turn on."""

    on: bool


class TracingSwitched(Struct, frozen=True):
    """The user decided whether model requests are recorded, from the next turn on."""

    on: bool


class MailSent(Struct, frozen=True):
    """A message between members of the team of this session; "lead" is the session itself.

    Each member gets its messages once, in the order of these events. `key` names the call
    that sent the message.
    """

    sender: str
    to: str
    text: str
    kind: Literal["message", "plan", "review", "shutdown"] = "message"
    key: str = ""


class TeammateIdled(Struct, frozen=True):
    """A teammate became idle: it has no messages, and no task is free.

    If `idle` is false, the event says that the teammate works again.

    A message to a teammate ends its idle state, too, without this event.
    """

    child: str
    idle: bool = True


class ChildGranted(Struct, frozen=True):
    """The budget of a subagent was changed. `budget` is its new total."""

    child: str
    budget: Budget


class ChildAsked(Struct, frozen=True):
    """A call of a subagent, on any level, needs a decision of the user.

    `id` is the id of the call after the name of the subagent, such as "child-1/c7".
    """

    id: str
    child: str  # "child-1", "child-1/child-2"
    agent: str
    call: ToolCall
    reason: str = ""
    hash: str = ""
    once: bool = False
    changes: tuple[Diff, ...] = ()
    outside: bool = False  # asked because text from outside was read

    @property
    def who(self) -> str:
        """The subagent with its agent, as shown to the user."""
        return f"{self.child} ({self.agent})"


class ChildAnswered(Struct, frozen=True):
    """The user decided on a `ChildAsked`.

    If `withdrawn`, the call no longer needs a decision.
    """

    id: str
    allowed: bool = False
    reason: str = ""
    answers: tuple[str, ...] = ()
    withdrawn: bool = False
    hash: str = ""  # of what was shown to the user


class ChildStopped(Struct, frozen=True):
    """A subagent was asked to end, with its own subagents."""

    child: str
    reason: str = "stopped by the person"


class ChildEnded(Struct, frozen=True):
    """A subagent has ended. `spent` includes its own subagents.

    `head` is the end of its journal at that time, as (seq, hash).
    """

    child: str
    outcome: Outcome
    status: Literal["done", "partial", "failed"]
    text: str = ""
    reason: str = ""
    spent: Spent = Spent()
    head: tuple[int, str] = (0, "")
    branch: str = ""  # branch of a working tree that still exists
    directory: str = ""  # directory of that working tree
    as_json: bool = False  # the text is the JSON of a value that code passed to FINAL
    denials: tuple[
        Denial, ...
    ] = ()  # calls refused in it and below; ids as in `ChildAsked`
    outside: bool = False  # text from outside was read in it or below it


class NestedCallMade(Struct, frozen=True):
    """Code that runs in the call `parent_call` makes a call, which ends with `Ended`.

    The model sees neither event; it sees only what the code prints.
    """

    call: ToolCall
    parent_call: str
    key: str = ""  # a hash of the call
    n: int = 0  # how often the same call was made before by this code


class VariableInjected(Struct, frozen=True):
    """A variable with which the session's Python starts. The blob has its value as JSON.

    `files` are the files from which the value was read, as (real path, sha256), in the order in
    which their texts are in the value. A long list is in the blob `files_blob` instead.
    """

    name: str
    blob: str
    files: tuple[tuple[str, str], ...] = ()
    files_blob: str = ""


class VariablesSaved(Struct, frozen=True):
    """The variables of the session's Python after a call, saved as a blob.

    The blob refers to `parts`: blobs with one large variable each, which are written again only
    if that variable changes. `variables` are (name, type); `lost` are variables that could
    not be saved, as (name, reason).
    """

    call_id: str
    blob: str
    variables: tuple[tuple[str, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...] = ()


class VariablesRestored(Struct, frozen=True):
    """A new Python process got these variables. `source` is the session from which they come;
    "" is this session.
    """

    blob: str
    source: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...] = ()


class Forked(Struct, frozen=True):
    """All lines up to this one are a copy of another session's."""

    source: str  # the id of that session
    seq: int
    h: str = ""  # the hash of that line
    id: str = ""  # the id of this session that is sent to providers


class HookRan(Struct, frozen=True):
    """A hook of the user has ended. It is not run again for the same call or event.

    `context` is text for the model, `notice` is text for the user. `arguments` replace the
    arguments of the call, unless they are null.
    """

    on: HookEvent
    hook: str  # its command or entry point as configured, possibly shortened
    key: str = ""  # tells it apart from the other hooks
    about: int = 0  # the seq of the message, response or event that it was run for
    call_id: str = ""  # the call that it was run for
    outcome: Literal["passed", "blocked", "failed"] = "passed"
    reason: str = ""  # why it blocked or failed
    asks: bool = False  # the user has to be asked about the call
    context: str = ""
    arguments: Raw = Raw(b"null")
    notice: str = ""
    seconds: float = 0.0
    by_failure: bool = False  # it blocked because it failed
    attempts: tuple[HostAttempt, ...] = ()  # the hosts that it reached, or tried to


class BackgroundStarted(Struct, frozen=True):
    """A command was started in the background. If `notify`, its end wakes the agent."""

    name: str  # "background-1"
    command: str
    call_id: str = ""  # the call that started it
    directory: str = ""  # where it runs
    notify: bool = False
    outside: bool = False  # it may use the network, so its output is text from outside
    moved: bool = False  # the user moved it to the background while that call ran it


class BackgroundEnded(Struct, frozen=True):
    """A background command is no longer running. `text` is the end of its output.

    The outcome "lost" means that refold exited, or the session was left, while the command
    ran. If `told`, the model already knows the end from the result of a call.
    """

    name: str
    outcome: Literal["done", "failed", "stopped", "lost"]
    code: int | None = None  # its exit code; null: refold stopped it
    reason: str = ""
    text: str = ""
    full_blob: str = ""  # the blob with all of a long output
    told: bool = False
    outside: bool = False  # `text` is from outside


class WorktreeEntered(Struct, frozen=True):
    """The session works in a git worktree from now on; its settings and rules do not
    change.
    """

    directory: str  # the directory within the worktree
    tree: str = ""  # the worktree itself
    branch: str = ""
    base: str = ""  # the commit that was checked out


class WorktreeLeft(Struct, frozen=True):
    """The session works in its own `directory` again.

    The outcome "gone" means that the worktree no longer existed when the session was resumed.
    """

    directory: str
    tree: str = ""
    outcome: Literal["kept", "removed", "gone"] = "kept"
    branch: str = ""  # the branch that remains of it


class Checkpointed(Struct, frozen=True):
    """A checkpoint of files: for each root of the workspace, its snapshot.

    `left_out` are files that are too large. `changed` are the differences from the previous
    checkpoint, as (real path, "created", "changed" or "deleted").
    """

    trees: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()


class FilesRestored(Struct, frozen=True):
    """Files were restored from `checkpoint`: the files in `only`, or all if `only` is empty.

    Restoring the checkpoint `before` undoes that.
    """

    checkpoint: int  # the seq of a `Checkpointed`
    before: int  # the seq of the `Checkpointed` that was made just before
    files: int = 0  # number of files that were changed
    only: tuple[str, ...] = ()  # real paths


class FileUploaded(Struct, frozen=True):
    """The user put this file into the workspace. `path` is its real path.

    `checkpoint` has the files before the upload. A rewind to before the user's next message
    restores them.
    """

    path: str
    size: int  # bytes
    sha256: str
    checkpoint: int = 0  # the seq of a `Checkpointed`; 0: no files are checkpointed


class PlaceRebuilt(Struct, frozen=True):
    """The files of the session are in another place, or on another worker, than before.

    If `place` is set, the remote place was lost, and `place` is the address of a new one. If
    not, another worker of a service continues the session. If `restored`, the new place or
    worker has the files of `checkpoint`: the newest checkpoint stored outside of the old place
    or worker (0: a checkpoint of another session). `lost` are the files that calls changed
    after that checkpoint, and `calls` counts those calls.

    If `place` and `problem` are "" and nothing was `restored`, a worker that had the session
    earlier has it again, with the files that it had after `checkpoint`.
    """

    place: str  # its address; "": another worker
    restored: bool = False  # False: its files were not replaced
    checkpoint: int = 0  # the seq of a `Checkpointed`
    files: int = 0  # number of files that were restored
    lost: tuple[str, ...] = ()  # real paths
    calls: int = 0
    problem: str = ""  # why it could not be restored


class TerminalStarted(Struct, frozen=True):
    """The user opened a terminal in the web page. Written before its shell is started.

    No view depends on the events about terminals, and the model gets none of them.
    """

    shell: str  # its path
    directory: str


class TerminalCommandEntered(Struct, frozen=True):
    """The shell of a terminal reported a command line, just before running it.

    Programs that read commands themselves do not report them: another shell, ssh, an
    interpreter.
    """

    terminal: int  # the seq of its `TerminalStarted`
    command: str | None = None  # None: the shell does not put the line into its history
    cut: bool = False  # `command` was shortened


class TerminalEnded(Struct, frozen=True):
    """A terminal ended. If the process of the server was killed, this event is missing.

    `reports_commands` says whether the shell had announced that it reports command lines.
    """

    terminal: int
    reason: Literal["exited", "closed", "idle", "stopped", "failed"]
    # The exit code of the shell, negative for a signal; None: it was not started.
    code: int | None = None
    reports_commands: bool = False
    problem: str = ""  # why it failed


TerminalEvent: TypeAlias = TerminalStarted | TerminalCommandEntered | TerminalEnded
