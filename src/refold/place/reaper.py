"""Finds and kills every process of a command.

A process can leave its group, its session and its parents, and can clear its environment. Two
marks identify it nevertheless: a word in its environment, and a resource limit that is
otherwise unused (bytes in message queues). The limit is set to a random number, which no
process can raise again.

Without /proc, only process groups can be killed. The processes in a sandbox are killed by the
kernel.
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

# Our tokens in the environment; those of outer calls come first.
ENVIRONMENT_NAME = "REFOLD_CALLS"
_TOKEN_VARIABLE = re.compile(rb"REFOLD_CALLS=([0-9.:]+)")
_QUEUE_LIMIT = re.compile(rb"Max msgqueue size +\d+ +(\d+)")
# sizes of message queues in bytes, below the usual limits of systems
_MIN_QUEUE_BYTES, _QUEUE_CHOICES = 10_000, 700_000
_THREAD_GROUP = re.compile(rb"^Tgid:\t(\d+)$", re.MULTILINE)
_FORK_COUNT = re.compile(rb"^processes (\d+)", re.MULTILINE)
_MAX_FORKS_FOR_RANGE = 500  # process numbers repeat after 32,768 forks at the earliest
_KILL_ROUNDS = 100
_KILL_PAUSE_SECONDS = 0.01


class ProcessMark(Struct, frozen=True):
    """Identifies the processes of one command.

    `token` is the word in their environment, `queues` their hard limit on bytes in message
    queues.
    """

    token: str
    queues: int
    began: int = 0  # start time, in ticks since the machine started
    forks: int = -1  # forks of the whole machine before the call; -1: unknown


class ProcessLine(Struct, frozen=True):
    """A process as the kernel describes it. `began` is in ticks since the machine started."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    began: int


def new_mark(outer: str = "") -> ProcessMark:
    """Create the mark of a command.

    `outer` is the token of the command in which this refold runs; "" if it runs in none.
    """
    word = f"{owner_token()}.{time.monotonic_ns()}"
    token = f"{outer}:{word}" if outer else word
    # The limit of message queues, which programs seldom use, is a mark that processes inherit
    # even if they remove the token from their environment.
    random_number = int.from_bytes(os.urandom(4), "big")
    queues = _MIN_QUEUE_BYTES + random_number % _QUEUE_CHOICES
    return ProcessMark(token, queues, _start_time_now(), _fork_count())


def process_line(pid: int) -> ProcessLine | None:
    """Return the kernel's description of a process; None if it does not exist.

    Without /proc the result is None, too.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before the last parenthesis may contain any character.
            fields = file.read().rpartition(b")")[2].split()
        state = fields[0].decode()
        parent, group, session = map(int, fields[1:4])
        began = int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
    return ProcessLine(pid, state, parent, group, session, began)


def all_processes() -> Iterator[ProcessLine]:
    """Yield all processes of the machine; none without /proc."""
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return
    for name in names:
        if name.isdigit() and (process := process_line(int(name))):
            yield process


def _processes_between(first: int, last: int) -> Iterator[ProcessLine]:
    """Yield the processes whose ids are between `first` and `last`, inclusive.

    This is faster than listing all processes.
    """
    for pid in range(first, last + 1):
        # Threads have numbers, too, and a directory listing does not include them.
        if (process := process_line(pid)) and _is_thread_group_leader(pid):
            yield process


def _is_thread_group_leader(pid: int) -> bool:
    leader = _THREAD_GROUP.search(_read_proc_file(f"/proc/{pid}/status"))
    return leader is not None and int(leader[1]) == pid


def processes_of(
    mark: ProcessMark, leader: int, *, gone_too: bool = True
) -> list[ProcessLine]:
    """Return the live processes of the command whose first process was `leader`.

    With `gone_too`, processes that have cut all ties to the leader are also found, by their
    mark. That takes longer.
    """
    candidates = [
        process
        for process in _processes_since(mark, leader)
        if process.began >= mark.began
        and process.state not in "ZX"  # zombies and dead processes
        and process.pid != os.getpid()
    ]
    member_ids = {leader}
    members = list[ProcessLine]()
    # A parent comes before its children.
    for process in sorted(candidates, key=lambda each: (each.began, each.pid)):
        is_member = (
            process.pid == leader
            or leader in (process.session, process.group)
            or process.parent in member_ids
        )
        if is_member or (gone_too and _has_mark(process.pid, mark)):
            member_ids.add(process.pid)
            members.append(process)
    return members


def end_all(mark: ProcessMark, leader: int) -> None:
    """Kill all processes of a command, in several rounds, until none is left."""
    for _ in range(_KILL_ROUNDS):
        signal_group(leader, signal.SIGKILL)
        processes = processes_of(mark, leader)
        if not processes:
            return
        # All are stopped before the first is killed, so that none can start another.
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                _send_signal(process, signal_number)
        time.sleep(_KILL_PAUSE_SECONDS)


def reap_strays() -> int:
    """Kill the processes of commands whose refold is no longer alive. Return their number."""
    strays = [
        process
        for process in all_processes()
        if process.state not in "ZX" and _is_stray(process.pid)
    ]
    for process in strays:
        _send_signal(process, signal.SIGKILL)
    return len(strays)


def _processes_since(mark: ProcessMark, leader: int) -> Iterator[ProcessLine]:
    """Yield the processes that may have started after `leader`, and `leader` itself.

    If that is not certain, yield all processes.
    """
    last, forks = _last_pid(), _fork_count()
    if mark.forks < 0:  # unknown
        return all_processes()
    # Process numbers wrap around, but not within so few forks.
    if forks - mark.forks > _MAX_FORKS_FOR_RANGE:
        return all_processes()
    is_in_order = 0 < leader <= last
    if not is_in_order or last - leader > _MAX_FORKS_FOR_RANGE:
        return all_processes()
    return _processes_between(leader, last)


def owner_token() -> str:
    """Return a word that identifies this process: its PID namespace, id and start time."""
    return _token_of(os.getpid())


@cache
def _token_of(pid: int) -> str:
    own = process_line(pid)
    return f"{_pid_namespace()}.{pid}.{own.began if own else 0}"


def owner_lives(word: str) -> bool:
    """Whether the process with the `owner_token` at the beginning of `word` is alive.

    Return True also for a process of another PID namespace, because its state cannot be found
    out, and for a word without a token.
    """
    parts = word.split(".")
    if len(parts) < 3 or parts[0] != _pid_namespace():
        return True
    pid, began = parts[1:3]
    if not pid.isdigit() or not began.isdigit():
        return True
    process = process_line(int(pid))
    return process is not None and process.began == int(began)


def _pid_namespace() -> str:
    """Return the number of this process's PID namespace; "0" if not Linux."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def _start_time_now() -> int:
    """Return the start time of a process that starts now, in ticks; 0 if not Linux."""
    try:
        ticks_per_second = os.sysconf("SC_CLK_TCK")
        ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * ticks_per_second)
        return max(0, ticks - 1)  # the kernel may round in another way
    except (AttributeError, ValueError, OSError):  # not Linux
        return 0


def _fork_count() -> int:
    """Return how many processes and threads were started since boot; -1 if not Linux."""
    count = _FORK_COUNT.search(_read_proc_file("/proc/stat"))
    return int(count[1]) if count else -1


def _last_pid() -> int:
    """Return the newest process id in our PID namespace; 0 if not Linux."""
    fields = _read_proc_file("/proc/loadavg").split()
    if len(fields) < 5 or not fields[4].isdigit():
        return 0
    return int(fields[4])


def _has_mark(pid: int, mark: ProcessMark) -> bool:
    """Whether a process has a command's mark, in its environment or in an unusual limit."""
    if mark.token.encode() in _read_proc_file(f"/proc/{pid}/environ"):
        return True
    queue_limit = _QUEUE_LIMIT.search(_read_proc_file(f"/proc/{pid}/limits"))
    return queue_limit is not None and int(queue_limit[1]) == mark.queues


def _is_stray(pid: int) -> bool:
    """Whether a refold that is no longer alive has started this process."""
    token = _TOKEN_VARIABLE.search(_read_proc_file(f"/proc/{pid}/environ"))
    if token is None:
        return False
    return any(not owner_lives(word) for word in token[1].decode().split(":"))


def _read_proc_file(path: str) -> bytes:
    """Return the content of a file in /proc; b"" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # exited, or owned by another user
        return b""


def _send_signal(process: ProcessLine, signal_number: signal.Signals) -> None:
    """Send a signal to a process, unless its id belongs to another process by now."""
    with suppress(OSError), ExitStack() as stack:
        pidfd = -1
        # Python before 3.9 has no pidfds. This code may run in it on another machine.
        if hasattr(os, "pidfd_open"):
            pidfd = os.pidfd_open(process.pid)
            stack.callback(os.close, pidfd)
        current = process_line(process.pid)
        if current is None or current.began != process.began:
            return
        if pidfd >= 0:
            signal.pidfd_send_signal(pidfd, signal_number)
        else:
            os.kill(process.pid, signal_number)
