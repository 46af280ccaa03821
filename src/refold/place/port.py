"""The interfaces to a workspace: its files, its commands, its snapshots.

Tools use only these. `files`, `commands` and `checkpoints` implement them on this machine.
Whether a call is allowed is decided before the tool runs, by the seam: it uses `outside` and
the permission rules.
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

Real = NewType("Real", str)  # absolute and without links: the result of `Files.real`

Why: TypeAlias = Callable[[Real], str]  # returns the reason, or ""

READ_ONLY = Confinement()

MAX_FILE_BYTES = 32 * 1024 * 1024  # the size of a file that is read completely


class DirectoryEntry(Struct, frozen=True):
    """An entry of a directory. `modified` is in nanoseconds since 1970."""

    name: str
    kind: Kind
    size: int
    modified: int


class FileWrite(Struct, frozen=True):
    """A change of one file. If `content` is None, the file is deleted.

    The change fails unless the sha256 of the present content is `expect`; "" means that no file
    exists. A file keeps its mode, and a new file gets the mode of `like`. `executable`, if
    given, sets or removes the executable bit.
    """

    real: Real
    content: bytes | None
    expect: str
    like: Real | None = None
    executable: bool | None = None


class GuardChange(Struct, frozen=True):
    """A command's change of a guarded path, and how refold undid it.

    `goal` is where the command's file is now; "" if it only deleted one. `fate` is "moved" if
    nothing was at the path before, "restored" or "lost" if the earlier file could or could not
    be restored, and "followed" if the path is the new name of a guarded file.
    """

    path: str
    goal: str
    fate: Literal["moved", "restored", "lost", "followed"] = "moved"

    def sentence(self, path: str) -> str:
        """Return a sentence about the change, with no full stop, for the displayed `path`."""
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
        """Return a clause that says how the user restores the moved file; "" if no command can.

        No command can if the file was not found, or stayed beside its old place because
        quarantine is on another disk.
        """
        folder, name = os.path.split(self.goal)
        is_beside_old_place = folder == os.path.dirname(self.path)
        if not name or is_beside_old_place:
            return ""
        hint = (
            f"; if the user made or wants the change, `refold quarantine restore "
            f"{escape_name(name)}` restores it"
        )
        if self.path.endswith("/.gitmodules"):
            hint += "; as a command of its own, `git submodule` asks the user"
        return hint


class GuardReport(Struct, frozen=True):
    """A command's changes of guarded paths: the undone and the allowed ones.

    `by_others` are guarded directories that another program changed; these changes are not
    undone.
    """

    undone: tuple[GuardChange, ...] = ()
    accepted: tuple[str, ...] = ()
    by_others: tuple[str, ...] = ()

    def sentences(self, label: Callable[[Real], str]) -> list[str]:
        """Return a sentence about each change. `label` returns the display name of a path."""
        accepted = (
            f"{label(Real(path))} was changed, as allowed" for path in self.accepted
        )
        others = (
            f"another program changed {label(Real(path))} meanwhile, which stays"
            for path in self.by_others
        )
        undone = (change.sentence(label(Real(change.path))) for change in self.undone)
        return [*undone, *accepted, *others]


class Finished(Struct, frozen=True):
    """How a command ended, and what it printed to stdout and stderr, in order.

    `code` is its exit status; None if it was stopped or continues. Of long output, only `start`
    and `end` are stored, and `dropped` counts the bytes between. `stopped` is the limit that
    stopped it. The sandbox forbade the network if `offline`, changes of files if `looking`, and
    new namespaces if `no_namespaces`. If `filtered`, the command reached only named hosts, by a
    proxy; `attempts` are the hosts that it tried. `continued` is the command if it was handed
    over.
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
        """The number of bytes that the command printed."""
        return len(self.start) + self.dropped + len(self.end)

    @property
    def text(self) -> str:
        """The stored output. Notes in it say where a part is missing or binary."""
        return self.read()[0]

    def read(self) -> tuple[str, bool]:
        """Return the stored output as text, and whether it is complete."""
        if not self.dropped:
            return to_text(self.start + self.end)
        gap = f"\n[{self.dropped:,} bytes were left out here]\n"
        return to_text(self.start)[0] + gap + to_text(self.end)[0], False


class Continued(Protocol):
    """A command that continues in the background.

    `end` waits until the command has ended, in any event loop, and is called once. If `end` is
    cancelled, the command is killed. `end` raises `ToolFailed` if the command could not be
    started.
    """

    async def end(self) -> Finished: ...  # waits until the command has ended


TellAttempt: TypeAlias = Callable[[HostAttempt], None]


class CommandExtras(Struct, frozen=True):
    """Optional settings of one command.

    `stdin` is a descriptor, which may be a socket. `limits` replace the usual limits.
    Directories in `seen` are readable even if they are otherwise hidden. With `own_tmp` the
    command has a /tmp of its own, deleted at its end. `used` is called regularly with the CPU
    seconds used so far. `environ` are additional variables that the user named. `tell_attempt`
    is called, in another thread, when the network filter is first asked for a host. `printed`
    stores the output and can be read meanwhile. `handover`, which needs `printed`, can move the
    command to the background.
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
        """Whether the command needs no sandbox or variables of its own."""
        return self.stdin is None and not (self.seen or self.own_tmp or self.environ)


NOTHING_MORE = CommandExtras()


class NetworkFilter(Protocol):
    """Connects commands to the hosts that they may reach.

    Call `begin` first, in a thread with all rights, because the thread that `begin` starts has
    only the rights of its caller. `open` serves the connections to `listener`. It returns a
    function that ends the serving and returns the attempts to connect.
    """

    def begin(self) -> None: ...
    def open(
        self,
        listener: "socket",
        hosts: "ReachableHosts",
        tell: TellAttempt | None = None,
    ) -> Callable[[], tuple[HostAttempt, ...]]: ...  # this function stops serving
    def close(self) -> None: ...


class WalkedFiles(Struct, frozen=True):
    """Paths of files relative to a directory.

    `unread` maps directories that cannot be read to the reasons.
    """

    paths: Sequence[str]
    unread: Mapping[str, str] = {}


class SearchScope(Struct, frozen=True):
    """What decides which files a search program ignores in a directory.

    `top` is the top of its repository, or "". `excludes` is the text of the user's exclude
    file.
    """

    is_in_repository: bool
    top: str
    excludes: str


class Ignores(Protocol):
    """Tells which names in a directory are ignored, and whether the directory itself is."""

    @property
    def ignored(self) -> bool: ...  # whether the directory itself is
    def ignores(self, name: str, *, directory: bool) -> bool: ...


class FileTree(Protocol):
    """Lists what is below a directory, and what git ignores there. Its methods may block.

    `rules` returns the rules for the names in `real`, faster if `parent_rules` has those of the
    directory above. `walk` lists files that are not ignored, and calls `check` meanwhile, which
    may raise. `times` returns modification times in seconds. `with_ignored` yields the absolute
    paths of all files.
    """

    def rules(self, real: Real, parent_rules: Ignores | None = None) -> Ignores: ...
    def walk(self, real: Real, check: Callable[[], None]) -> WalkedFiles: ...
    def times(self, real: Real, paths: Sequence[str]) -> Sequence[float]: ...  # in seconds
    def with_ignored(self, real: Real) -> Iterator[str]: ...  # absolute paths of files
    def scope(self, real: Real) -> SearchScope: ...  # for a search in `real`


class Files(Protocol):
    """The files that an agent works on: those below one or more roots.

    `real` resolves a path of a model, with its links and `..`. A path is relative to the first
    root unless it is absolute; the file need not exist; `~` is refused. All other methods take
    the result of `real` and follow no link, so the file that was judged is the file that is
    opened. Names are as `os.fsdecode` returns them. All methods but `display_name` may block.
    Errors are `ToolFailed`, one sentence with printable paths.

    `only` returns the files for one call: `real` then raises for a path that is not in `reals`,
    or, if `reals` is empty, for one outside the roots. `with_restrictions` adds rules for
    `why_unreadable` and `why_hidden`. `dry_run` returns files whose changes stay in memory,
    where they are read back.

    `outside` returns the real path if it is outside the roots, else None. `display_name` is the
    printable path for people and models. `kind` says what is at a path. `why_unreadable` says
    why a file may not be read, or ""; `why_hidden` why its content is not shown to a search of
    a folder above. `items` lists a directory without unreadable files. `read` returns a whole
    regular file, and raises if it is larger than `at_most`.

    `write` replaces a whole file or nothing, keeps its mode, and creates missing directories,
    but no root. `write` raises for a file with hard links, or if the sha256 of the present
    content is not `expect` ("": no file exists). `remove` deletes a file under the same
    conditions. `put_all` makes all changes or none; if undoing fails, the error names what is
    left. `put_all` adds no line with a mask, the mark that a model sees instead of a secret.
    `secrets` returns the secrets of a file with a given text, for unmasking.

    An editor may have unsaved text of a file. `read` returns this text for the files of `only`.
    `save_first` saves the text, and returns whether there was any. `remarks` are clauses for
    the model and the user about what the editor did. `tree` lists what is below a directory.
    """

    @property
    def tree(self) -> FileTree: ...  # lists what is below a directory
    def real(self, path: str) -> Real: ...  # resolves links; the file may be missing
    def only(self, reals: Collection[str]) -> "Files": ...  # for one call
    def with_restrictions(self, why_unreadable: Why, why_hidden: Why) -> "Files": ...
    def dry_run(self) -> "Files": ...  # whose changes stay in memory
    def outside(self, path: str) -> Real | None: ...  # None: it is inside the roots
    def display_name(self, real: Real) -> str: ...  # printable
    def kind(self, real: Real) -> Kind: ...  # "nothing" if nothing is there
    def why_unreadable(self, real: Real) -> str: ...  # "" if it may be read
    def why_hidden(self, real: Real) -> str: ...  # "" if a search may show it
    def items(self, real: Real) -> tuple[DirectoryEntry, ...]: ...  # no unreadable files
    def read(self, real: Real, at_most: int = MAX_FILE_BYTES) -> bytes: ...
    def write(self, real: Real, content: bytes, *, expect: str) -> None: ...  # "": no file
    def remove(self, real: Real, *, expect: str) -> None: ...  # `expect`: its sha256
    def put_all(self, puts: Sequence[FileWrite]) -> None: ...  # all or none
    async def save_first(self) -> bool: ...  # whether the editor had unsaved text
    def remarks(self) -> Sequence[str]: ...  # clauses about what the editor did
    def secrets(self, before: str, name: str) -> "Secrets": ...  # `before`: the file's text


class Secrets(Protocol):
    """Replaces masks by secrets in text for one file. See `file_secrets`."""

    def unmask(self, text: str) -> str: ...  # raises for an unknown mask
    def replacement(
        self, old: str, new: str, text: str | None = None
    ) -> tuple[str, str]: ...  # `old` and `new` with secrets
    def as_in_file(self, text: str) -> str: ...  # unknown masks stay


class Editor(Protocol):
    """Reads and writes files in an editor, by absolute path, and waits only for some seconds.

    It is called from threads. Raises `ToolFailed`, whose text is a clause for a sentence.
    """

    @property
    def writes(self) -> bool: ...
    def read(self, real: str) -> str: ...
    def write(self, real: str, text: str) -> None: ...


class Commands(Protocol):
    """Runs shell commands.

    `run` passes `command` to bash in the directory `cwd`, with empty input, no terminal, and an
    environment without secrets. `run` returns when bash has exited, after killing all processes
    that are left. All processes are killed at once after `seconds`, over a limit, or when `run`
    is cancelled. `on_output` gets text as it is printed. Only a part of very long output is
    stored. `ToolFailed` is raised only if bash could not be started.

    `confines` says what the command may change and reach. If the machine cannot enforce that,
    the command runs all the same: the caller must know it. `extras` are for example the
    command's input, of which the caller closes our end.

    `has` returns whether a program can be run. `close`, at the end of the session, deletes what
    was stored for its commands; none may be running then. `with_hidden_paths` returns a copy
    whose commands cannot read some more paths, if the machine can hide them. `unread` returns
    these absolute paths, for each command.
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

    def has(self, program: str) -> bool: ...  # whether it can be run
    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "Commands": ...
    def close(self) -> None: ...


# For each root of a workspace, its real path and the name of the snapshot of its files.
Trees: TypeAlias = tuple[tuple[str, str], ...]


# Gets the number of files that are stored, and of all files; 0 if they are not counted yet.
ReportProgress: TypeAlias = Callable[[int, int], None]


class SnapshotTaken(Struct, frozen=True):
    """A snapshot of all roots. `left_out` are real paths that it does not contain.

    Earlier snapshots of the files in `lost` cannot be restored.
    """

    trees: Trees
    left_out: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class FileChange(Struct, frozen=True):
    """A file that differs between two snapshots. For a binary file, line counts are None."""

    path: str  # a real path
    kind: Literal["created", "changed", "deleted"]
    added: int | None = None  # the number of lines
    removed: int | None = None


class Commit(Struct, frozen=True):
    """A commit of the user's repository."""

    name: str  # its hash
    subject: str  # the first line of its message
    at: float  # seconds since 1970


class Snapshots(Protocol):
    """Takes snapshots of the files of a workspace, and restores them.

    `begin` starts a scan in the background, unless one is running or recent. `take` waits for
    the scan, and starts one if there is none. `note_change` says that files may have changed:
    earlier scans are out of date, and `is_behind` is true until `take`. `forget` is for changes
    by another program, and does not set `is_behind`.

    The user's repository may lend contents to snapshots. If a call with `arguments` may delete
    such contents, `secure` stores them before. `take` and `secure` can be cancelled. Each
    second they report how many files are stored, and of how many.

    `changes` compares two snapshots. A directory that only `after` has as a root is reported as
    one created directory. `commits` returns commits of the user's repository, from `head` back.
    `commit_trees` returns the files of a commit, for a comparison with a snapshot. All three
    block.

    `restore` changes files from their state in `current` to their state in `to`, and returns
    the number of changed files. If a file differs from `current`, or a file that no snapshot
    contains is in the way, nothing is changed, and the error names these files. After an
    interruption, `restore` can be called again. If `paths` is given, only these files change;
    ignored files and repositories never do.

    Errors are `ToolFailed`. A caller that continues nevertheless passes the error to
    `report_failure`; `notice` is the newest error, for the user, or "".
    """

    @property
    def is_behind(self) -> bool: ...  # whether `note_change` was called since `take`
    @property
    def notice(self) -> str: ...  # the newest error; "" if there is none
    def begin(self) -> None: ...
    def note_change(self) -> None: ...  # files may have changed
    def forget(self) -> None: ...  # another program may have changed files
    async def take(self, report: ReportProgress | None = None) -> SnapshotTaken: ...
    async def secure(
        self, arguments: bytes, report: ReportProgress | None = None
    ) -> None: ...
    def changes(self, before: Trees, after: Trees) -> tuple[FileChange, ...]: ...
    def patch(
        self, before: Trees, after: Trees, paths: Collection[str] = ()
    ) -> tuple[tuple[FileChange, str], ...]:
        """Return the changes, each with its unified diff without header lines.

        The diff of a binary file is "". If `paths` is given, only these files are compared.
        """
        ...

    def commits(self, head: str) -> tuple[Commit, ...]: ...  # from `head` back
    def commit_trees(self, commit: str) -> Trees: ...  # the files of `commit`

    async def restore(
        self,
        current: Trees,
        to: Trees,
        paths: Collection[str] = (),
        report: ReportProgress | None = None,
    ) -> int: ...  # the number of changed files
    def report_failure(self, reason: str) -> None: ...  # sets `notice`
