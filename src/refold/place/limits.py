"""Sets and checks the resource limits of a command.

The kernel enforces some limits, which are set before the command starts. Others are checked
while it runs, and `supervise` stops the command.

Free disk space is checked every 30 ms, and every 5 ms if little is left: the journal needs
space to record what happened, and a fast disk could be filled between two slower checks. A
limit on the size of a file would not suffice, because there can be many files.
"""

import os
import re
import resource
import time
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct

_MIN_FREE_BYTES = 64 * 1024 * 1024  # must stay free, for the journal among others
_NEARLY_FULL_BYTES = 1024 * 1024 * 1024  # a fast disk writes this within about a second
# seconds between checks of a nearly full disk; many disks write a GB per second
_NEARLY_FULL_CHECK_SECONDS = 0.005
_MEBIBYTE_BYTES = 1024 * 1024
_MEGABYTE_BYTES = 1_000_000
# PyPy does not define this constant
_MESSAGE_QUEUES = getattr(resource, "RLIMIT_MSGQUEUE", 12)
_PSS_LINE = rb"(?m)^Pss: +(\d+) kB"


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a command, with all processes that it starts.

    `memory` is in bytes; 0 means three quarters of the machine's memory. `disks` are
    directories whose disks the command must not fill, besides the disk of its working
    directory. The number of threads and the free disk space are checked often. After
    `checks_per_count` of these checks, the command's processes and their memory are counted;
    for a long command that the kernel limits, too, this is done less often.
    """

    processes: int = 512
    memory: int = 0  # bytes
    checks_per_count: int = 5
    disks: tuple[str, ...] = ()

    @property
    def bytes_of_memory(self) -> int:
        return self.memory or _physical_memory() * 3 // 4


_THREADS_PER_PROCESS = 8  # more than most programs have
# If memory runs out nevertheless, the kernel kills the command and not refold. A limit on
# address space would not help: sanitizers reserve terabytes and use little.
_OOM_SCORE = 500


def ulimit_words(queues: int) -> str:
    """Return shell words that set the kernel's limits of a command.

    The words are for a command without a user namespace. `queues` is the mark of the command
    (see `reaper`).
    """
    score = f"echo {_OOM_SCORE} >/proc/self/oom_score_adj"
    return f"{{ ulimit -c 0; ulimit -q {queues}; {score}; }} 2>/dev/null; "


def set_limits(pid: int, limits: Limits, queues: int) -> None:
    """Set the kernel's limits of the waiting process `pid` and of all that it will start.

    The process has a user namespace of its own, in which the kernel counts only the command's
    processes. Their number is not limited for root. `queues` is the command's mark (see
    `reaper`).
    """
    limits_by_resource = {resource.RLIMIT_CORE: 0, _MESSAGE_QUEUES: queues}
    if os.geteuid() != 0:
        # Threads count as processes here, so this limit only stops extreme cases.
        limits_by_resource[resource.RLIMIT_NPROC] = limits.processes * _THREADS_PER_PROCESS
    for kind, bound in limits_by_resource.items():
        # the process has exited, or its hard limit is lower
        with suppress(OSError, ValueError):
            resource.prlimit(pid, kind, (bound, bound))
    with suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "wb") as file:
        file.write(b"%d" % _OOM_SCORE)


def too_many_threads(limits: Limits, before: int) -> bool:
    """Whether the command may have started too many processes, so that they must be counted.

    `before` is the number of threads on the machine before the command; 0 if unknown.
    """
    return before > 0 and thread_count() - before > limits.processes


def limit_exceeded(
    limits: Limits,
    pids: Iterable[int],
    disks_in_memory: Iterable[str] = (),
) -> str:
    """Return a clause about the limit that a command's processes exceed; "" if none.

    `disks_in_memory` are its memory file systems, whose files count as memory.
    """
    all_pids = list(pids)
    if len(all_pids) > limits.processes:
        return f"it ran more than {limits.processes} processes at a time"
    max_bytes = limits.bytes_of_memory
    file_bytes = sum(map(_bytes_in_memory, disks_in_memory))
    # `_own_memory` is fast, but counts shared memory once per process. So a sum that is too
    # high is computed again, precisely.
    if file_bytes + sum(map(_own_memory, all_pids)) <= max_bytes:
        return ""
    if file_bytes + sum(map(_proportional_memory, all_pids)) <= max_bytes:
        return ""
    return f"it used more than {max_bytes // _MEGABYTE_BYTES:,} MB of memory"


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes and of their reaped children."""
    return sum(map(_cpu_ticks, pids)) / os.sysconf("SC_CLK_TCK")


class Disks:
    """Watches the disks that a command may write to.

    A disk that is already full at the beginning is not watched; otherwise no command could run.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        devices = dict[int, str]()
        for path in paths:
            with suppress(OSError):
                devices.setdefault(os.stat(path).st_dev, path)
        self._watched = [
            path for path in devices.values() if free_bytes(path) > _MIN_FREE_BYTES
        ]
        self._is_nearly_full = False  # one of the disks
        self.full_disk()  # sets `_is_nearly_full`

    def next_check(self, planned: float) -> float:
        """Return when to check again, in monotonic seconds.

        The result is `planned`, or an earlier time if a disk is nearly full.
        """
        if not self._is_nearly_full:
            return planned
        return min(planned, time.monotonic() + _NEARLY_FULL_CHECK_SECONDS)

    def full_disk(self) -> str:
        """Return a clause about a disk with too little free space; "" if there is none.

        Also note for `next_check` whether a disk is nearly full.
        """
        free_by_disk = [(free_bytes(path), path) for path in self._watched]
        # Without disks, the default: none is nearly full.
        least_free, path = min(free_by_disk, default=(_NEARLY_FULL_BYTES, ""))
        self._is_nearly_full = least_free < _NEARLY_FULL_BYTES
        if least_free > _MIN_FREE_BYTES:
            return ""
        reserve = f"{_MIN_FREE_BYTES // _MEBIBYTE_BYTES} MiB must stay free"
        return f"it filled the disk of {path}, on which {reserve}"


def free_bytes(path: str) -> int:
    """Return the number of bytes that can still be written at `path`; 0 if unknown."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return 0
    return stats.f_bavail * stats.f_frsize


def thread_count() -> int:
    """Return the number of threads on this machine; 0 if it is not Linux."""
    try:
        with open("/proc/loadavg", "rb") as file:
            # The fourth field is "running/all".
            return int(file.read().split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def descendants(pid: int, limit: int) -> list[int]:
    """Return the ids of a process and its descendants.

    If there are more than `limit`, the search ends, and the result is incomplete.
    """
    pids = list[int]()
    to_visit = [pid]
    while to_visit and len(pids) <= limit:
        parent = to_visit.pop()
        pids.append(parent)
        with suppress(OSError):  # it has exited
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                    to_visit.extend(int(child) for child in file.read().split())
    return pids


def _cpu_ticks(pid: int) -> int:
    """Return the CPU ticks of a process and its reaped children; 0 if it has exited."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in the parentheses may contain any character.
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15]))  # utime, stime, cutime and cstime
    except (OSError, ValueError):
        return 0


def _own_memory(pid: int) -> int:
    """Return about how many bytes of memory a process uses; 0 if it has exited.

    Memory that it shares with its forks is included, but not files and shared memory.
    """
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _proportional_memory(pid: int) -> int:
    """Return the bytes of memory of a process, with its part of shared pages.

    The size of a shared page is divided by the number of processes that use it.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            pss = re.search(_PSS_LINE, file.read())
    except OSError:
        return _own_memory(pid)
    return int(pss[1]) * 1024 if pss else 0


def _bytes_in_memory(disk: str) -> int:
    """Return the bytes that the files of a memory file system use; 0 if unknown."""
    try:
        stats = os.statvfs(disk)
    except OSError:
        return 0
    return (stats.f_blocks - stats.f_bfree) * stats.f_frsize


def _physical_memory() -> int:
    """Return the bytes of memory of this machine; 8 GiB if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 8 * 1024**3  # unknown: a usual size
