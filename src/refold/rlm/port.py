"""What the two halves of this room know of each other: a process that runs cells, a host.

The process holds variables and knows nothing of sessions; the host knows the session and
runs no code. Values cross as JSON.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct

from refold.errors import RefoldError


class HostFailed(RefoldError):
    """A function of ours that code called failed: an exception in that code, with this."""


class WorkerLost(RefoldError):
    """The process is gone: killed, out of memory or time. Its variables are gone, too."""


# What code calls: the name of a function and its arguments, by name. Gives a JSON value,
# or raises `HostFailed`. Several may be under way at once.
Host: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[object]]


class Cell(Struct, frozen=True):
    """What a cell came to. `text` is the observation: what it printed, its value, its error.

    `final` is what was given to FINAL, as JSON; null is a value, None is none.
    """

    text: str
    failed: bool = False
    final: Raw | None = None
    seconds: float = 0.0  # without those in which it waited for the host


class Kept(Struct, frozen=True):
    """Variables: their names and types; and those that cannot be kept, with the reason."""

    kept: tuple[tuple[str, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()


class Variables(Struct, frozen=True):
    """All variables as bytes: small ones in `index`, each large one a part of its own.

    Parts are named by their sha256. `new` are those that whoever asked did not know.
    """

    index: bytes
    parts: tuple[str, ...] = ()
    new: Mapping[str, bytes] = {}


# Gives a part by its name, or raises `JournalError`.
Parts: TypeAlias = Callable[[str], Awaitable[bytes]]


class Found(Struct, frozen=True):
    """The variables of another session, and how to get at their parts."""

    session: str
    index: bytes
    parts: tuple[str, ...]
    read: Parts


class Worker(Protocol):
    """A process with variables. All methods raise `WorkerLost` where it is gone.

    `run` runs one cell; `functions` are the names of the host's functions that code may
    call besides the primitives. `put` sets a variable to a value in JSON, which is the
    part of that name from then on. `keep` gives all variables as bytes that only
    `restore` in another worker can read, without the parts that are `known`; `restore`
    replaces what is there. `names` are the variables there are, with their types.
    """

    async def run(self, cell: str, host: Host, progress: Callable[[str], None]) -> Cell: ...
    async def put(self, name: str, part: str, value: bytes) -> None: ...
    async def keep(self, known: Collection[str]) -> tuple[Variables, Kept]: ...
    async def restore(self, index: bytes, parts: Collection[str], read: Parts) -> Kept: ...
    async def names(self) -> tuple[tuple[str, str], ...]: ...


class WorkerLimits(Struct, frozen=True):
    seconds: float = 120.0  # of one cell; while it waits for the host they do not count
    memory: int = 2 * 1024**3  # bytes
    output: int = 10_000  # characters of one observation


class Workers(Protocol):
    """Makes workers. Leaving the context ends the process and all that it started.

    `functions` are names under which code finds functions of the host; each takes its
    parameters by name, or in the order given here.
    """

    def __call__(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> AbstractAsyncContextManager[Worker]: ...
