"""The ports of a workspace: its files, its commands, its snapshots.

Tools know only these. `files`, `commands` and `checkpoints` implement them on this machine. Whether a
call is allowed is not decided here: the seam asks `outside` and the rules before a tool runs.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NewType, Protocol, TypeAlias

from msgspec import Struct

from refold.place.command_output import to_text
from refold.place.limits import Limits
from refold.values.display import HostAttempt
from refold.values.kept_output import Printed
from refold.values.printable_names import escape_name
from refold.values.tools import Confinement

if TYPE_CHECKING:
    from socket import socket

    from refold.place.handover import Handover
    from refold.values.hosts import ReachableHosts


Kind: TypeAlias = Literal["file", "directory", "link", "other", "nothing"]

Real = NewType("Real", str)  # absolute, links followed: what `Files.real` gives

Why: TypeAlias = Callable[[Real], str]  # the reason, or ""

READ_ONLY = Confinement()

AT_MOST = 32 * 1024 * 1024  # bytes of one file that is read whole


class DirectoryEntry(Struct, frozen=True):
    """One name in a directory. `modified` is in nanoseconds since 1970."""

    name: str
    kind: Kind
    size: int
    modified: int


class FileWrite(Struct, frozen=True):
    """The wanted state of one file. `content` None deletes it.

    It applies only if the sha256 of the present content is `expect`; "" for no file.
    A file keeps its mode; a new one takes that of the file `like`. `executable` says
    instead whether it can be run.
    """

    real: Real
    content: bytes | None
    expect: str
    like: Real | None = None
    executable: bool | None = None


class GuardChange(Struct, frozen=True):
    """What a command did to a guarded path, and how it was undone.

    What it made is now at `goal`; "" if it removed what was there. "moved": there was nothing
    before. "restored": what was there before is there again; "lost": it could not be written again.
    "followed": a guarded file had been renamed to this path.
    """

    path: str
    goal: str
    fate: Literal["moved", "restored", "lost", "followed"] = "moved"

    def sentence(self, path: str) -> str:
        """A sentence on the change, without the last full stop. `path` is the display name."""
        goal = escape_name(self.goal)
        if self.fate == "moved":
            return (
                f"{path} is guarded: what was made there is now {goal}{self._restore_hint}"
            )
        if self.fate == "followed":
            return f"{path} was a guarded file under another name, and is now {goal}"
        if self.fate == "lost":
            state = f"changed, and what was made of it is now {goal}" if goal else "removed"
            return (
                f"{path} is guarded: it was {state}; what was there before could not be "
                f"restored, because it is too large or the disk is full{self._restore_hint}"
            )
        if not self.goal:
            return f"{path} is guarded: it was removed, and is there again"
        return (
            f"{path} is guarded and was changed while the command ran, so refold put the old "
            f"version back and moved the new one to {goal}{self._restore_hint}"
        )

    @property
    def _restore_hint(self) -> str:
        folder, name = os.path.split(self.goal)
        if not name or folder == os.path.dirname(self.path):
            return ""  # missing, or quarantine is on another disk: it is beside it
        alone = "; as a command of its own, `git submodule` asks the user"
        return (
            f"; if the user made or wants the change, `refold quarantine restore "
            f"{escape_name(name)}` restores it"
            f"{alone if self.path.endswith('/.gitmodules') else ''}"
        )


class GuardReport(Struct, frozen=True):
    """What a command did to guarded paths: what was undone, and what it was allowed to change.

    `by_others` are guarded directories in which another program changed something meanwhile,
    which stays.
    """

    undone: tuple[GuardChange, ...] = ()
    accepted: tuple[str, ...] = ()
    by_others: tuple[str, ...] = ()

    def sentences(self, label: Callable[[Real], str]) -> list[str]:
        """Sentences on the changes. `label` returns the display name of a path."""
        allowed = (f"{label(Real(path))} was changed, as allowed" for path in self.accepted)
        others = (
            f"another program changed {label(Real(path))} meanwhile, which stays"
            for path in self.by_others
        )
        undone = (change.sentence(label(Real(change.path))) for change in self.undone)
        return [*undone, *allowed, *others]


class Finished(Struct, frozen=True):
    """How a command ended, and what it printed, both streams in their order.

    `code` is None where we ended it. Of very long output the middle is left out:
    `start` and `end` are what was kept and `dropped` counts the bytes between.
    `stopped` says which limit ended it. `guarded` is what it did to guarded paths. The
    sandbox kept it from the network (`offline`), from changing files (`looking`), or from making
    namespaces (`no_namespaces`). `filtered`: it could reach named hosts only, through a proxy, and
    `attempts` are those that it tried.
    `continued` is a command that was handed over with a `Handover`, and still runs.
    """

    code: int | None
    start: bytes
    end: bytes = b""
    dropped: int = 0
    timed_out: bool = False
    stopped: str = ""
    guarded: GuardReport = GuardReport()
    offline: bool = False
    looking: bool = False
    no_namespaces: bool = False
    filtered: bool = False
    attempts: tuple[HostAttempt, ...] = ()
    continued: "Continued | None" = None

    @property
    def total_bytes(self) -> int:
        """The size of the whole output."""
        return len(self.start) + self.dropped + len(self.end)

    @property
    def text(self) -> str:
        """The stored output as text; notes mark missing and binary parts."""
        return self.read()[0]

    def read(self) -> tuple[str, bool]:
        """The output as text, and whether it is complete."""
        if not self.dropped:
            return to_text(self.start + self.end)
        gap = f"\n[{self.dropped:,} bytes were left out here]\n"
        return to_text(self.start)[0] + gap + to_text(self.end)[0], False


class Continued(Protocol):
    """A command that runs without the task that started it.

    `end` waits for its end in any event loop, and is called once; it has no time limit then. If
    `end` is cancelled, it ends the command at once. It raises `ToolFailed` if bash could not be
    started.
    """

    async def end(self) -> Finished: ...


TellAttempt: TypeAlias = Callable[[HostAttempt], None]


class CommandExtras(Struct, frozen=True):
    """What one command gets that others do not.

    `stdin` is a descriptor of ours, which may be a socket. `limits` replace the usual
    limits. `seen` are directories that it must be able to read, even if they are hidden
    otherwise. With `own_tmp` it has a /tmp of its own, which is deleted at its end. `used`
    is called from time to time with the seconds that it has computed.
    `environ` are variables that the user named for it, in addition to the harmless ones.
    `tell_attempt` is called, in another thread, when its network filter was first asked for a host.
    `printed` gets its output, and can be read while it runs. `handover`, which needs
    `printed`, can let go of it.
    """

    stdin: int | None = None
    limits: Limits | None = None
    seen: tuple[str, ...] = ()
    own_tmp: bool = False
    used: Callable[[float], None] | None = None
    environ: Mapping[str, str] = {}
    tell_attempt: TellAttempt | None = None
    printed: Printed | None = None
    handover: "Handover | None" = None

    @property
    def usual(self) -> bool:
        """Whether the command can start in the same sandbox, and with the same variables,
        as others.
        """
        return self.stdin is None and not (self.seen or self.own_tmp or self.environ)


NOTHING_MORE = CommandExtras()


class NetworkFilter(Protocol):
    """Connects commands to the hosts that they may reach.

    Call `begin` first, in a thread that has given up no rights: the threads that it starts have the
    rights of their caller. `open` serves the connections to a socket. It returns a function that
    ends this and returns the attempts.
    """

    def begin(self) -> None: ...
    def open(
        self,
        listener: "socket",
        hosts: "ReachableHosts",
        tell: TellAttempt | None = None,
    ) -> Callable[[], tuple[HostAttempt, ...]]: ...
    def close(self) -> None: ...


class WalkedFiles(Struct, frozen=True):
    """The files below a directory, relative to it. `unread` are directories, with reasons."""

    paths: Sequence[str]
    unread: Mapping[str, str] = {}


class SearchScope(Struct, frozen=True):
    """What decides what a search program ignores in a directory.

    `top` is that of its repository, "" without one; `excludes` the text of the user's own file.
    """

    is_in_repository: bool
    top: str
    excludes: str


class Ignores(Protocol):
    """What is ignored in one directory. `ignored`: the directory itself is."""

    @property
    def ignored(self) -> bool: ...
    def ignores(self, name: str, *, directory: bool) -> bool: ...


class FileTree(Protocol):
    """What is below a directory, and what git ignores there. The methods may block on a disk.

    `rules` are for the names in `real`; those of the directory `above` make it faster. `walk`
    lists the files that are not ignored; it calls `check`, which may raise. `times` are when these
    were modified, in seconds. `with_ignored` are the absolute paths of all files below.
    """

    def rules(self, real: Real, parent_rules: Ignores | None = None) -> Ignores: ...
    def walk(self, real: Real, check: Callable[[], None]) -> WalkedFiles: ...
    def times(self, real: Real, paths: Sequence[str]) -> Sequence[float]: ...
    def with_ignored(self, real: Real) -> Iterator[str]: ...
    def scope(self, real: Real) -> SearchScope: ...


class Files(Protocol):
    """The files that an agent works on, below one directory and perhaps more roots.

    A path from a model is relative to the first root unless it is absolute. `real` resolves
    its links and `..`, once; the file need not exist. `~` is refused, because no shell
    reads these paths. All other methods take the result of `real` and follow no link again,
    neither on the way nor at the end: the file that was judged is the file that is opened.
    Names are as `os.fsdecode` returns them. All methods but `display_name` may block on a disk,
    so they are called from a thread. Failures are `ToolFailed`, one sentence, with the path
    made printable.

    `only` gives the same files for one call: `real` then raises for a path that leads
    elsewhere than to one of `reals`, or, if there are none, out of the roots. `with_restrictions`
    gives the same files with additional rules for `why_unreadable` and `why_hidden`. On those of
    `dry_run` changes stay in memory, are checked alike, and are read back from there.

    `outside` is the real path if it is below none of the roots, else None. `display_name` is
    the path for people and models: short and printable. `kind` is the kind of file. `why_unreadable`
    says why a file may not be read, or ""; `why_hidden` why a search that was given only a
    folder may not show its content. `items` lists a directory, without what may not be
    read. `read` returns a regular file whole and refuses one larger than `at_most`; devices
    and pipes are refused without waiting. `write` replaces the whole content or nothing,
    keeps the mode, creates missing directories, but no root, and refuses a file with
    several names (hard links). It overwrites only content whose sha256 is `expect`, or, if
    that is "", writes only where nothing is; otherwise it raises. `remove` deletes a file
    in the same way. `put_all` does many of these or none: if one fails, the others are
    undone, and if that fails, the error says what stayed.

    An editor may have text of a file that is not saved. `read` returns it for the files of
    `only`; `save_first` has it saved, and says whether there was any. `remarks` are clauses
    about what the editor did in this call, for the model and the user.

    `tree` lists what is below a directory.

    `secrets` puts values back into text for a file, given its text before. `put_all` writes no
    line with a mask that the file did not have.
    """

    @property
    def tree(self) -> FileTree: ...
    def real(self, path: str) -> Real: ...
    def only(self, reals: Collection[str]) -> "Files": ...
    def with_restrictions(self, why_unreadable: Why, why_hidden: Why) -> "Files": ...
    def dry_run(self) -> "Files": ...
    def outside(self, path: str) -> Real | None: ...
    def display_name(self, real: Real) -> str: ...
    def kind(self, real: Real) -> Kind: ...
    def why_unreadable(self, real: Real) -> str: ...
    def why_hidden(self, real: Real) -> str: ...
    def items(self, real: Real) -> tuple[DirectoryEntry, ...]: ...
    def read(self, real: Real, at_most: int = AT_MOST) -> bytes: ...
    def write(self, real: Real, content: bytes, *, expect: str) -> None: ...
    def remove(self, real: Real, *, expect: str) -> None: ...
    def put_all(self, puts: Sequence[FileWrite]) -> None: ...
    async def save_first(self) -> bool: ...
    def remarks(self) -> Sequence[str]: ...
    def secrets(self, before: str, name: str) -> "Secrets": ...


class Secrets(Protocol):
    """The secrets of one file, for text that will be written into it. See
    `file_secrets`."""

    def unmask(self, text: str) -> str: ...
    def replacement(
        self, old: str, new: str, text: str | None = None
    ) -> tuple[str, str]: ...
    def as_in_file(self, text: str) -> str: ...


class Editor(Protocol):
    """What an editor does with a file, given its absolute path. Raises `ToolFailed`, with a
    clause for a sentence as its text. Called from threads; it waits only for some seconds.
    """

    @property
    def writes(self) -> bool: ...
    def read(self, real: str) -> str: ...
    def write(self, real: str, text: str) -> None: ...


class Commands(Protocol):
    """Runs shell commands.

    `run` gives the line to bash in the directory `cwd`, with empty input, no terminal, and
    an environment without secrets. It returns when bash has ended; everything that the
    command left running is killed then, wherever it went. After `seconds`, over a limit, or
    when cancelled, everything is killed at once. `on_output` gets text as it is printed.
    Memory is bounded, however much that is. `ToolFailed` is raised only if bash could not
    be started.

    `confines` says what the command may change and reach. If the machine cannot enforce
    that, the command runs all the same: the caller knew it when it decided.

    `extras` are for a program that gets input while it runs: its own input and limits, and
    what it must be able to read. The caller closes our end of its input.

    `has` returns whether a program of that name can be run. `close` at the end of the session
    removes what was stored for its commands; none may be running then.

    `with_hidden_paths` returns the same commands, but with these paths hidden from them if the machine
    can do that: absolute paths, computed for each command.
    """

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        confines: Confinement = READ_ONLY,
        on_output: Callable[[str], None] | None = None,
        extras: CommandExtras = NOTHING_MORE,
    ) -> Finished: ...

    def has(self, program: str) -> bool: ...
    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "Commands": ...
    def close(self) -> None: ...


# For each root of a workspace, real, the name of the snapshot of its files.
Trees: TypeAlias = tuple[tuple[str, str], ...]


# Gets how many files are stored, and of how many; 0 if they are not counted yet.
ReportProgress: TypeAlias = Callable[[int, int], None]


class SnapshotTaken(Struct, frozen=True):
    """Snapshots of the files. `left_out` are real paths that no snapshot contains; of `lost`,
    earlier snapshots cannot be restored.
    """

    trees: Trees
    left_out: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class FileChange(Struct, frozen=True):
    """A file that differs between two snapshots. Bytes that are no text have no lines."""

    path: str  # real
    kind: Literal["created", "changed", "deleted"]
    added: int | None = None  # lines
    removed: int | None = None


class Commit(Struct, frozen=True):
    """A commit of the user's repository."""

    name: str  # its hash
    subject: str  # the first line of its message
    at: float  # seconds since 1970


class Snapshots(Protocol):
    """Takes snapshots of the files of a workspace, and restores them.

    `begin` starts a scan in the background and returns at once; it does nothing while a
    scan is running or a fresh one exists. `take` waits for the scan, and starts one if
    there is none. `note_change` says that files may have changed: earlier scans are out of date,
    and the snapshots stay behind until `take`. `forget` says that another program may
    have changed some: the same, but `is_behind` stays unchanged.

    A repository of the user may lend contents to the snapshots. `secure` stores them before a
    call with these arguments, if it may delete them. Both waits can be cancelled, and
    report how many files are stored, of how many, each second.

    `changes` compares two snapshots; it blocks on a disk, so it is called from a thread. A
    root that only one of them has is left out.

    `commits` are those of the user's repository up to the commit `head`, newest first;
    `commit_trees` are the files of one, to compare them with a snapshot. Both block on a disk.

    `restore` changes the files from their state in `current` to their state in `to`, and counts
    them. If a file differs from `current`, or if something that no snapshot contains is in the
    way, it changes nothing and names those files. If it is interrupted, it can be called
    again with the same arguments. Ignored files and repositories stay as they are, and with
    `only` all other files, too.

    All methods raise `ToolFailed`. A caller that continues all the same passes the error to
    `report_failure`; `notice` is the newest such sentence for the user, "" if there is none.
    """

    @property
    def is_behind(self) -> bool: ...
    @property
    def notice(self) -> str: ...
    def begin(self) -> None: ...
    def note_change(self) -> None: ...
    def forget(self) -> None: ...
    async def take(self, report: ReportProgress | None = None) -> SnapshotTaken: ...
    async def secure(
        self, arguments: bytes, report: ReportProgress | None = None
    ) -> None: ...
    def changes(self, before: Trees, after: Trees) -> tuple[FileChange, ...]: ...
    def patch(
        self, before: Trees, after: Trees, paths: Collection[str] = ()
    ) -> tuple[tuple[FileChange, str], ...]:
        """The changes, each with its unified diff without header lines; "" for no text.

        With `paths`, of no files but these.
        """
        ...

    def commits(self, head: str) -> tuple[Commit, ...]: ...
    def commit_trees(self, commit: str) -> Trees: ...

    async def restore(
        self,
        current: Trees,
        to: Trees,
        paths: Collection[str] = (),
        report: ReportProgress | None = None,
    ) -> int: ...
    def report_failure(self, reason: str) -> None: ...
