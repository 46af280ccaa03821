"""The resource limits of a command, and the checks while it runs.

The kernel enforces some limits: they are set before the command starts. The others are
checked while it runs. `commands` ends the command.

Free disk space is checked every 30 ms, and every 5 ms once little is left: the journal
needs space to record what happened, and between two slower checks a fast disk writes more
than that. A limit on the size of one file would not count many files.
"""

import os
import re
import resource
import time
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct

_LEFT_OVER = 64 * 1024 * 1024  # bytes that must stay free, also for the journal
_NEARLY_FULL_BYTES = 1024 * 1024 * 1024  # a fast disk writes this within about a second
_NEAR_AGAIN = 0.005  # seconds: many disks write a GB per second
_MEBIBYTE_BYTES = 1024 * 1024
_MEGABYTE_BYTES = 1_000_000
_MESSAGE_QUEUES = getattr(resource, "RLIMIT_MSGQUEUE", 12)  # PyPy has no name for it
_PSS_LINE = rb"(?m)^Pss: +(\d+) kB"


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a command and all processes that it starts.

    `memory` 0 means three quarters of the machine's memory. Threads and disks are checked
    cheaply; every `checks_per_count` such checks, the memory and the processes of the command
    are counted. A command that runs long and is also limited by the kernel is counted less
    often. `disks` are directories whose disks must not fill up, besides the disk of the working
    directory.
    """

    processes: int = 512
    memory: int = 0  # bytes
    checks_per_count: int = 5
    disks: tuple[str, ...] = ()

    @property
    def bytes_of_memory(self) -> int:
        return self.memory or _physical_memory() * 3 // 4


# Where memory runs out all the same, the kernel ends the command and not us. Less address
# space would not do: sanitizers take terabytes and use little.
_ENDED_FIRST = 500


def ulimit_words(queues: int) -> str:
    """Shell words that set the kernel's limits, for a command without a namespace of its own."""
    score = f"echo {_ENDED_FIRST} >/proc/self/oom_score_adj"
    return f"{{ ulimit -c 0; ulimit -q {queues}; {score}; }} 2>/dev/null; "


def set_limits(pid: int, limits: Limits, queues: int) -> None:
    """Set the kernel's limits for a waiting process and all that it will start.

    The process is in its own user namespace: no other process counts against its user,
    unless that is root.
    """
    limits_by_resource = {resource.RLIMIT_CORE: 0, _MESSAGE_QUEUES: queues}
    if os.geteuid() != 0:
        # Threads count as processes here, so this only stops the worst.
        limits_by_resource[resource.RLIMIT_NPROC] = limits.processes * 8
    for kind, bound in limits_by_resource.items():
        with suppress(OSError, ValueError):  # it has ended, or its hard limit is lower
            resource.prlimit(pid, kind, (bound, bound))
    with suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "wb") as file:
        file.write(b"%d" % _ENDED_FIRST)


def too_many_threads(limits: Limits, before: int) -> bool:
    """Whether new threads of the machine make a count of the processes necessary."""
    return before > 0 and thread_count() - before > limits.processes


def limit_exceeded(
    limits: Limits,
    pids: Iterable[int],
    disks_in_memory: Iterable[str] = (),
) -> str:
    """The limit that these processes exceed, in words; "" for none."""
    numbers = list(pids)
    if len(numbers) > limits.processes:
        return f"it ran more than {limits.processes} processes at a time"
    max_bytes = limits.bytes_of_memory
    on_disks = sum(map(_bytes_in_memory, disks_in_memory))
    # Memory that forks share is counted for each of them first, which is quick.
    if all(
        on_disks + sum(map(measure, numbers)) > max_bytes
        for measure in (_own_memory, _proportional_memory)
    ):
        return f"it used more than {max_bytes // _MEGABYTE_BYTES:,} MB of memory"
    return ""


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU seconds of these processes and of the ended children that they have waited for."""
    return sum(map(_cpu_ticks, pids)) / os.sysconf("SC_CLK_TCK")


class Disks:
    """Disks that a command may write to, but not fill.

    A disk that is full when the command begins is not checked, or nothing could run.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        devices = dict[int, str]()
        for path in paths:
            with suppress(OSError):
                devices.setdefault(os.stat(path).st_dev, path)
        self._watched = [path for path in devices.values() if free_bytes(path) > _LEFT_OVER]
        self._near = False  # a disk could be full within a moment
        self.full_disk()

    def next_check(self, otherwise: float) -> float:
        """The monotonic time of the next check: earlier if a disk is nearly full."""
        return min(otherwise, time.monotonic() + _NEAR_AGAIN) if self._near else otherwise

    def full_disk(self) -> str:
        """The disk that has too little space left, in words; "" for none.

        A cheap check.
        """
        left = [(free_bytes(path), path) for path in self._watched]
        least, path = min(left, default=(_NEARLY_FULL_BYTES, ""))
        self._near = least < _NEARLY_FULL_BYTES
        if least > _LEFT_OVER:
            return ""
        reserve = f"{_LEFT_OVER // _MEBIBYTE_BYTES} MiB must stay free"
        return f"it filled the disk of {path}, on which {reserve}"


def free_bytes(path: str) -> int:
    """Bytes that can still be written there; 0 if unknown."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return 0
    return stats.f_bavail * stats.f_frsize


def thread_count() -> int:
    """The number of threads on this machine, a cheap check; 0 if not Linux."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def descendants(pid: int, limit: int) -> list[int]:
    """The ids of a process and of its descendants; the search stops soon after `limit`."""
    pids, waiting = list[int](), [pid]
    while waiting and len(pids) <= limit:
        parent = waiting.pop()
        pids.append(parent)
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                    waiting.extend(int(child) for child in file.read().split())
    return pids


def _cpu_ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before the parenthesis may contain anything.
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15]))
    except (OSError, ValueError):
        return 0


def _own_memory(pid: int) -> int:
    """The memory of a process that it does not share with others, in bytes, roughly."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _proportional_memory(pid: int) -> int:
    """The memory of a process in bytes, with shared pages divided among their users."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            pss = re.search(_PSS_LINE, file.read())
    except OSError:
        return _own_memory(pid)
    return int(pss[1]) * 1024 if pss else 0


def _bytes_in_memory(disk: str) -> int:
    """The bytes of files on a disk that is in memory."""
    try:
        stats = os.statvfs(disk)
    except OSError:
        return 0
    return (stats.f_blocks - stats.f_bfree) * stats.f_frsize


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 8 * 1024**3
