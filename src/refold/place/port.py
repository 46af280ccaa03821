"""The ports of a workspace: its files, its commands, its snapshots.

Tools know only these. `files`, `commands` and `checkpoints` implement them on this machine. Whether a
call is allowed is not decided here: the seam asks `outside` and the rules before a tool runs.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NewType, Protocol, TypeAlias

from msgspec import Struct

from refold.place.command_output import as_text
from refold.place.limits import Limits
from refold.values.tools import Confines

Kind: TypeAlias = Literal["file", "directory", "link", "other", "nothing"]

Real = NewType("Real", str)  # absolute, links followed: what `Files.real` gives

Why: TypeAlias = Callable[[Real], str]  # the reason, or ""

LOOKING = Confines()

AT_MOST = 32 * 1024 * 1024  # bytes of one file that is read whole


class DirectoryEntry(Struct, frozen=True):
    """One name in a directory. `modified` is in nanoseconds since 1970."""

    name: str
    kind: Kind
    size: int
    modified: int


class Put(Struct, frozen=True):
    """What one file is to be. `content` None: it is to go away.

    It is done only where the sha256 of what is there is `expect`; "" for nothing there.
    A file keeps its mode; a new one takes that of the file `like`. `executable` says
    instead whether it can be run.
    """

    real: Real
    content: bytes | None
    expect: str
    like: Real | None = None
    executable: bool | None = None


class Finished(Struct, frozen=True):
    """How a command ended, and what it printed, both streams in their order.

    `code` is None where we ended it. Of very long output the middle is left out:
    `start` and `end` are what was kept and `dropped` counts the bytes between.
    `stopped` says which limit ended it. `taken` are guarded paths that it made and that
    were taken away again, each with where it is now. `offline` and `looking` say that a
    sandbox held it: it could not reach the network, and it could change no files.
    """

    code: int | None
    start: bytes
    end: bytes = b""
    dropped: int = 0
    timed_out: bool = False
    stopped: str = ""
    taken: tuple[tuple[str, str], ...] = ()
    offline: bool = False
    looking: bool = False

    @property
    def printed(self) -> int:
        """All the bytes there were."""
        return len(self.start) + self.dropped + len(self.end)

    @property
    def text(self) -> str:
        """All that was kept, as text; lines say how much is missing, or is no text."""
        return self.read()[0]

    def read(self) -> tuple[str, bool]:
        """The same, and whether it is all that was printed."""
        if not self.dropped:
            return as_text(self.start + self.end)
        gap = f"\n[{self.dropped:,} bytes were left out here]\n"
        return as_text(self.start)[0] + gap + as_text(self.end)[0], False


class CommandExtras(Struct, frozen=True):
    """What one command gets that others do not.

    `stdin` is a descriptor of ours, which may be a socket. `limits` stand for those of
    all others. `seen` are directories that it must be able to read, whatever hides them.
    With `own_tmp` its /tmp is its own and ends with it. `used` hears now and then how many seconds all of it has computed.
    """

    stdin: int | None = None
    limits: Limits | None = None
    seen: tuple[str, ...] = ()
    own_tmp: bool = False
    used: Callable[[float], None] | None = None


NOTHING_MORE = CommandExtras()


class Files(Protocol):
    """The files an agent works on, below one directory and perhaps more roots.

    A path as a model gives it is relative to the first root unless it is absolute.
    `real` follows its links and `..`, once; it need not exist. `~` is refused: no shell
    reads these. Everything else takes what `real` gave and follows no link again, on
    the way or at its end: what was judged is what is opened. Names come as
    `os.fsdecode` gives them. All but `called` may wait for a disk, so they are called
    from a thread. Failures are `ToolFailed`, one sentence, with the path made printable.

    `only` gives the same files for one call: `real` then raises for a path that leads
    elsewhere than to one of `reals`, or, if there are none, out of the roots. `heeding`
    gives the same files, but these two say, too, what `unread` and `unshown` say. On those
    of `dry_run` changes stay in memory, are checked alike and read back.

    `outside` is the real path where it lies below none of the roots, else None.
    `called` is how to write a path for people and models: short and printable.
    `kind` says what is there. `unread` says why a file may not be read, or "", `unshown`
    why a search that was told only a folder may not show what stands in it. `items`
    lists a directory, without what may not be read. `read` gives a regular file whole
    and refuses what is larger than `at_most`; devices and pipes are refused, not waited
    for. `write` replaces the whole content or nothing, keeps the mode, makes missing
    directories, but no root, and refuses a file with several names (hard links). It
    writes only over content whose sha256 is `expect`, or, if that is "", where nothing
    is; otherwise it raises. `remove` takes such a file away. `put_all` does many of
    these or none: where one fails half-way the others are taken back, and if that
    cannot be, the error says what stayed.
    """

    def real(self, path: str) -> Real: ...
    def only(self, reals: Collection[str]) -> "Files": ...
    def heeding(self, unread: Why, unshown: Why) -> "Files": ...
    def dry_run(self) -> "Files": ...
    def outside(self, path: str) -> Real | None: ...
    def called(self, real: Real) -> str: ...
    def kind(self, real: Real) -> Kind: ...
    def unread(self, real: Real) -> str: ...
    def unshown(self, real: Real) -> str: ...
    def items(self, real: Real) -> tuple[DirectoryEntry, ...]: ...
    def read(self, real: Real, at_most: int = AT_MOST) -> bytes: ...
    def write(self, real: Real, content: bytes, *, expect: str) -> None: ...
    def remove(self, real: Real, *, expect: str) -> None: ...
    def put_all(self, puts: Sequence[Put]) -> None: ...


class Commands(Protocol):
    """Runs shell commands.

    `run` gives the line to bash in the directory `cwd`, with an empty input, no
    terminal, and an environment without secrets. It returns when bash has
    ended; whatever the command left running is ended then, wherever it went.
    After `seconds`, over a limit, or when cancelled, all of it is ended at once.
    `on_output` hears text as it is printed. Memory is bounded however much that
    is. `ToolFailed` is raised only where bash could not be started.

    `confines` says what it may change and reach. Where the machine cannot hold a
    command to that, it runs all the same: whoever judged it knew.

    `given` is for a program that is talked to while it runs: an input of its own, its
    own limits, and what it must see. Our end of its input is ours to close.

    `has` says whether a program of that name can be run. `close` at the end of the
    session removes what was kept for its commands; none may run then.

    `hiding` gives the same, but for these paths, asked for at each command: absolute, and
    kept from it where the machine can.
    """

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        confines: Confines = LOOKING,
        on_output: Callable[[str], None] | None = None,
        given: CommandExtras = NOTHING_MORE,
    ) -> Finished: ...

    def has(self, program: str) -> bool: ...
    def hiding(self, unread: Callable[[], Sequence[str]]) -> "Commands": ...
    def close(self) -> None: ...


# For each root of a workspace, real, the name of the snapshot of its files.
Trees: TypeAlias = tuple[tuple[str, str], ...]


class Taken(Struct, frozen=True):
    """How the files are. `left_out` are real paths that no snapshot holds."""

    trees: Trees
    left_out: tuple[str, ...] = ()


class FileChange(Struct, frozen=True):
    """A file that differs between two snapshots. Bytes that are no text have no lines."""

    path: str  # real
    kind: Literal["created", "changed", "deleted"]
    added: int | None = None  # lines
    removed: int | None = None


class Snapshots(Protocol):
    """Takes down how the files of a workspace are, and brings them back.

    `begin` starts to look, elsewhere, and returns at once; it does nothing while a look
    is under way or a fresh one is at hand. `taken` waits for it, and looks itself where
    was never begun. `dirty` says that files may have changed: what was seen before counts
    no more, and the snapshots are `behind` until `taken`. `forget` says that another program
    else may have changed some: the same, but nothing is owed.

    `changes` says how two snapshots differ; it waits for a disk, so it is called from a
    thread. What only one of them knows of as a root of its own is left out of account.

    `restore` changes the files from how they are in `now` to how they were in `to`, and
    counts them. It changes nothing where a file is not any more as in `now`, or where
    something that no snapshot holds is in the way, and names those. Broken off, it can
    be done again with the same arguments. Ignored files and repositories stay as they are.

    All raise `ToolFailed`. `failed` hears of it from whoever goes on all the same;
    `notice` is the newest sentence of that kind for the person, "" while all is well.
    """

    @property
    def behind(self) -> bool: ...
    @property
    def notice(self) -> str: ...
    def begin(self) -> None: ...
    def dirty(self) -> None: ...
    def forget(self) -> None: ...
    async def taken(self) -> Taken: ...
    def changes(self, before: Trees, after: Trees) -> tuple[FileChange, ...]: ...
    def patch(self, before: Trees, after: Trees) -> tuple[tuple[FileChange, str], ...]:
        """The changes, each with its unified diff without header lines; "" for no text."""
        ...

    async def restore(self, now: Trees, to: Trees) -> int: ...
    def failed(self, why: str) -> None: ...
