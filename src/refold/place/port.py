"""Where an agent works: its files and its commands. The ports only.

Tools know these and nothing beneath. `files` and `commands` keep them on the
plain machine; a sandbox keeps them its own way. Whether a call may go ahead is
not decided here: the seam asks `outside` and the rules before a tool runs.
"""

from collections.abc import Callable
from typing import Literal, NewType, Protocol, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["file", "directory", "link", "other", "nothing"]

Real = NewType("Real", str)  # absolute, links followed: what `Files.real` gives

AT_MOST = 32 * 1024 * 1024  # bytes of one file that is read whole


class Item(Struct, frozen=True):
    """One name in a directory. `modified` is in nanoseconds since 1970."""

    name: str
    kind: Kind
    size: int
    modified: int


class Finished(Struct, frozen=True):
    """How a command ended, and what it printed, both streams in their order.

    `code` is None where we ended it. Of very long output the middle is left out:
    `start` and `end` are what was kept and `dropped` counts the bytes between.
    """

    code: int | None
    start: bytes
    end: bytes = b""
    dropped: int = 0
    timed_out: bool = False

    @property
    def text(self) -> str:
        """All that was kept, as text; a line says how much is missing."""
        if not self.dropped:
            return (self.start + self.end).decode(errors="replace")
        gap = f"\n[{self.dropped:,} bytes were left out here]\n"
        return self.start.decode(errors="replace") + gap + self.end.decode(errors="replace")


class Files(Protocol):
    """The files an agent works on, below one directory and perhaps more roots.

    A path as a model gives it is relative to the first root unless it is absolute;
    `~` is the person's home. `real` follows its links and `..`, once; it need not
    exist. Everything else takes what `real` gave and follows no link at its end
    again: what was judged is what is opened. Names come as `os.fsdecode` gives them.
    All but `called` may wait for a disk, so they are called from a thread. Failures
    are `ToolFailed`, one sentence, with the path made printable.

    `outside` is the real path where it lies below none of the roots, else None.
    `called` is how to write a path for people and models: short and printable.
    `kind` says what is there. `items` lists a directory. `read`
    gives a regular file whole and refuses what is larger than `at_most`; devices
    and pipes are refused, not waited for. `write` replaces the whole content or
    nothing, keeps the mode, makes missing directories, and refuses a file with
    several names (hard links). It writes only over content whose sha256
    is `expect`, or, if that is "", where nothing is; otherwise it raises.
    """

    def real(self, path: str) -> Real: ...
    def outside(self, path: str) -> Real | None: ...
    def called(self, real: Real) -> str: ...
    def kind(self, real: Real) -> Kind: ...
    def items(self, real: Real) -> tuple[Item, ...]: ...
    def read(self, real: Real, at_most: int = AT_MOST) -> bytes: ...
    def write(self, real: Real, content: bytes, *, expect: str) -> None: ...


class Commands(Protocol):
    """Runs shell commands.

    `run` gives the line to bash in the directory `cwd`, with an empty input, no
    terminal, and an environment without secrets. It returns when bash has
    ended; whatever the command left running in its process group is ended then.
    After `seconds`, or when cancelled, the whole group is ended at once.
    `on_output` hears text as it is printed. Memory is bounded however much that
    is. `ToolFailed` is raised only where bash could not be started.

    `has` says whether a program of that name can be run.
    """

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        on_output: Callable[[str], None] | None = None,
    ) -> Finished: ...

    def has(self, program: str) -> bool: ...
