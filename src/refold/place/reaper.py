"""Finds every process of a command, and ends it.

A process can leave its group, its session and its parents, and clear its environment. Two marks
stay with it: a word in the environment, and an unused resource limit, set to a number of ours,
which cannot be raised again. Without /proc, there are only process groups. The kernel ends the
processes in a sandbox.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache

from msgspec import Struct

from refold.process_groups import signal_group

# Our tokens in the environment, those of outer calls first.
ENVIRONMENT_NAME = "REFOLD_CALLS"
_TOKEN_VARIABLE = re.compile(rb"REFOLD_CALLS=([0-9.:]+)")
_QUEUE_LIMIT = re.compile(rb"Max msgqueue size +\d+ +(\d+)")
_LOWEST, _MARKS = 10_000, 700_000  # bytes of message queues: below what systems give
_THREAD_GROUP = re.compile(rb"^Tgid:\t(\d+)$", re.MULTILINE)
_FORK_COUNT = re.compile(rb"^processes (\d+)", re.MULTILINE)
_MAX_FORKS_FOR_RANGE = 500  # process numbers repeat after 32,768 forks at the earliest
_KILL_ROUNDS = 100
_KILL_PAUSE_SECONDS = 0.01


class ProcessMark(Struct, frozen=True):
    """What identifies the processes of one call. `queues` is the hard limit that they have."""

    token: str
    queues: int
    began: int = 0  # ticks since the machine started
    forks: int = -1  # of the whole machine, before it began; -1: not known


class ProcessLine(Struct, frozen=True):
    """One line of the list of processes."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    began: int


def new_mark(outer: str = "") -> ProcessMark:
    """A mark for a call. `outer` are the marks that this process has itself."""
    word = f"{owner_token()}.{time.monotonic_ns()}"
    token = f"{outer}:{word}" if outer else word
    return ProcessMark(
        token,
        _LOWEST + int.from_bytes(os.urandom(4), "big") % _MARKS,
        _start_time_now(),
        _fork_count(),
    )


def process_line(pid: int) -> ProcessLine | None:
    """The entry of a process; None without such a process or without /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before the last parenthesis may hold anything.
            fields = file.read().rpartition(b")")[2].split()
        numbers = [int(fields[index]) for index in (1, 2, 3, 19)]
    except (OSError, ValueError, IndexError):
        return None
    return ProcessLine(pid, fields[0].decode(), *numbers)


def all_processes() -> Iterator[ProcessLine]:
    """All processes."""
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return
    for name in names:
        if name.isdigit() and (process := process_line(int(name))):
            yield process


def _processes_between(first: int, last: int) -> Iterator[ProcessLine]:
    """Processes with a number from `first` to `last`: listing all would take longer."""
    for pid in range(first, last + 1):
        # Threads have numbers, too, which a listing does not show.
        if (process := process_line(pid)) and _is_thread_group_leader(pid):
            yield process


def _is_thread_group_leader(pid: int) -> bool:
    leader = _THREAD_GROUP.search(_read_proc_file(f"/proc/{pid}/status"))
    return leader is not None and int(leader[1]) == pid


def processes_of(
    mark: ProcessMark, leader: int, *, gone_too: bool = True
) -> list[ProcessLine]:
    """All live processes of the call whose first process was `leader`.

    `gone_too` includes those that cut all ties to it, which takes longer.
    """
    young = [
        process for process in _processes_since(mark, leader) if process.began >= mark.began
    ]
    young = [
        process
        for process in young
        if process.state not in "ZX" and process.pid != os.getpid()
    ]
    inside = {leader}
    members = list[ProcessLine]()
    for process in sorted(young, key=lambda each: (each.began, each.pid)):
        if (
            process.pid == leader
            or leader in (process.session, process.group)
            or process.parent in inside
            or (gone_too and _has_mark(process.pid, mark))
        ):
            inside.add(process.pid)
            members.append(process)
    return members


def end_all(mark: ProcessMark, leader: int) -> None:
    """Signal all processes of the call to end, repeatedly until none is left."""
    for _ in range(_KILL_ROUNDS):
        signal_group(leader, signal.SIGKILL)
        left = processes_of(mark, leader)
        if not left:
            return
        # All are stopped before the first is killed, so that none starts another.
        for order in (signal.SIGSTOP, signal.SIGKILL):
            for process in left:
                _send_signal(process, order)
        time.sleep(_KILL_PAUSE_SECONDS)


def reap_strays() -> int:
    """End the processes that killed refolds left. Return their number."""
    strays = [
        process
        for process in all_processes()
        if process.state not in "ZX" and _is_stray(process.pid)
    ]
    for process in strays:
        _send_signal(process, signal.SIGKILL)
    return len(strays)


def _processes_since(mark: ProcessMark, leader: int) -> Iterator[ProcessLine]:
    """The leader, and processes that may have begun after it."""
    last, forks = _last_pid(), _fork_count()
    # Numbers are assigned in a circle, which so few forks cannot have closed.
    if (
        mark.forks < 0
        or forks - mark.forks > _MAX_FORKS_FOR_RANGE
        or not 0 < leader <= last
    ):
        return all_processes()
    return (
        _processes_between(leader, last)
        if last - leader <= _MAX_FORKS_FOR_RANGE
        else all_processes()
    )


def owner_token() -> str:
    """A unique token for this process: its namespace, its number, its start."""
    return _token_of(os.getpid())


@cache
def _token_of(pid: int) -> str:
    own = process_line(pid)
    return f"{_pid_namespace()}.{pid}.{own.began if own else 0}"


def owner_lives(word: str) -> bool:
    """Whether the process that `word`, or a prefix of it, identifies is alive.

    If that is unknown, as in another container, it counts as alive.
    """
    space, pid, began = [*word.split("."), "", ""][:3]
    if space != _pid_namespace() or not pid.isdigit() or not began.isdigit():
        return True
    process = process_line(int(pid))
    return process is not None and process.began == int(began)


def _pid_namespace() -> str:
    """The PID namespace of this process."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def _start_time_now() -> int:
    """The start time of a process that begins now."""
    try:
        ticks = os.sysconf("SC_CLK_TCK")
        return max(0, int(time.clock_gettime(time.CLOCK_BOOTTIME) * ticks) - 1)
    except (AttributeError, ValueError, OSError):  # no Linux
        return 0


def _fork_count() -> int:
    """How many processes and threads the machine has ever started; -1: no Linux."""
    count = _FORK_COUNT.search(_read_proc_file("/proc/stat"))
    return int(count[1]) if count else -1


def _last_pid() -> int:
    """The newest process number in our namespace; 0 if not Linux."""
    fields = _read_proc_file("/proc/loadavg").split()
    return int(fields[4]) if len(fields) > 4 and fields[4].isdigit() else 0


def _has_mark(pid: int, mark: ProcessMark) -> bool:
    if mark.token.encode() in _read_proc_file(f"/proc/{pid}/environ"):
        return True
    queue_limit = _QUEUE_LIMIT.search(_read_proc_file(f"/proc/{pid}/limits"))
    return queue_limit is not None and int(queue_limit[1]) == mark.queues


def _is_stray(pid: int) -> bool:
    token = _TOKEN_VARIABLE.search(_read_proc_file(f"/proc/{pid}/environ"))
    if token is None:
        return False
    return any(not owner_lives(word) for word in token[1].decode().split(":"))


def _read_proc_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # ended, or of another user
        return b""


def _send_signal(process: ProcessLine, order: signal.Signals) -> None:
    """Send a signal. The number may be reused by now, so it is checked again."""
    with suppress(OSError), ExitStack() as stack:
        number = -1
        if hasattr(os, "pidfd_open"):  # not before Python 3.9, on the far side of a pipe
            number = os.pidfd_open(process.pid)
            stack.callback(os.close, number)
        current = process_line(process.pid)
        if current is None or current.began != process.began:
            return
        if number >= 0:
            signal.pidfd_send_signal(number, order)
        else:
            os.kill(process.pid, order)
