"""Runs one command from its start to its end, in a thread of its own.

The thread starts the first process, reads its output, watches its limits and kills all its
processes. It lives as long as the command, because a sandbox is killed with the thread that
started it, and because a thread cannot regain rights that it gave up. This is also faster than
a worker thread for each wait. `Supervisor.news` wakes the event loop, in which `commands`
waits.
"""

import math
import os
import select
import signal
import subprocess
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import Lock

from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.command_output import OutputPipe
from refold.place.limits import (
    Disks,
    Limits,
    cpu_seconds,
    descendants,
    limit_exceeded,
    thread_count,
    too_many_threads,
)
from refold.place.port import Finished, GuardReport
from refold.place.reaper import end_all, processes_of
from refold.place.sandbox import Launch
from refold.place.sandbox_ahead import SandboxAhead
from refold.place.spawn import (
    RunningCommand,
    SpawnRequest,
    close_descriptors,
    confine_thread,
    start,
)
from refold.process_groups import is_alive, signal_group
from refold.values.display import HostAttempt

_GRACE_SECONDS = 0.15  # between SIGTERM and SIGKILL
_LAST_OUTPUT_SECONDS = 0.2  # seconds for remaining processes to print after bash has exited
# seconds between two checks of processes that are not our children
_PROCESS_CHECK_SECONDS = 0.005
_THREAD_CHECK_SECONDS = 0.03  # seconds between two checks of the number of threads


class Supervisor:
    """A running command. Call `begin`, and `close` when it is `over`.

    `news` is a descriptor that becomes readable when `deliver` has something to do or the
    command is over. `stop` may be called at any time, also after `close`, and from any thread.
    """

    def __init__(
        self,
        request: SpawnRequest,
        limits: Limits,
        seconds: float | None,
        on_output: Callable[[str], None] | None,
        make_launch: Callable[[], Launch],
        ahead: SandboxAhead | None = None,
    ) -> None:
        self._request, self._limits, self._make_launch = request, limits, make_launch
        self._ahead = ahead
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        self._on_output, self._used = on_output, request.extras.used
        self._messages = deque[str | float | Callable[[], None]]()
        self.over, self.broken = False, ""
        self._finished: Finished | None = None
        self._error: BaseException | None = None
        self._after: Callable[[], GuardReport] | None = None
        self._guard = ExitStack()
        # Called in the thread when the command has started. `deliver` calls the result in
        # another: a thread started from here would lack the rights that this one gave up.
        self.on_start: Callable[[Launch], Callable[[], None] | None] = lambda launch: None
        self.news, self._tell_news = _wake_pipe()
        self._stop, self._tell_stop = _wake_pipe()
        self._closing = Lock()

    def begin(self) -> None:
        """Start the thread of the command."""
        # `Thread.start` would wait until the thread runs, which costs two thread switches
        # for each command.
        start_new_thread(self._work, ())

    def stop(self) -> None:
        """Wake the thread, so that it stops the command. Do nothing after `close`."""
        # The number of a closed descriptor may belong to another file by now.
        with self._closing:
            if self._tell_stop >= 0:
                _wake(self._tell_stop)

    def detach(self) -> None:
        """Remove the time limit, and only store the output from now on."""
        self.remove_limit()
        self._on_output = None

    def remove_limit(self) -> None:
        self._until = math.inf

    def deliver(self) -> None:
        """Call the listeners with new output and CPU seconds. Call this in the event loop.

        Also call the function that `on_start` returned, and set `over` at the end.
        """
        with suppress(BlockingIOError):
            # The thread closes its end last of all: after that our ends can be closed.
            self.over = self.over or not os.read(self.news, 4096)
        while self._messages:
            message = self._messages.popleft()
            if isinstance(message, str):
                if self._on_output:
                    self._on_output(message)
            elif callable(message):
                message()
            elif self._used:
                self._used(message)

    @property
    def has_ended_by_itself(self) -> bool:
        """Whether the command ran, and neither a limit nor `stop` stopped it."""
        finished = self._finished
        return bool(
            finished and not (finished.timed_out or finished.stopped or self.broken)
        )

    @property
    def needs_settling(self) -> bool:
        """Whether `settle` must be called after the end."""
        return self._after is not None

    def settle(self) -> None:
        """Undo changes of guarded paths, and add what was undone to the result.

        Call it in another thread: that of the command has no rights to do this.
        """
        guarded = self._after() if self._after else GuardReport()
        if self._finished:
            self._finished = replace(self._finished, guarded=guarded)

    def result(self) -> Finished:
        """Return how the command ended, or raise the exception of the command's thread."""
        if self._finished is None:
            raise self._error or ToolFailed("The command was not started.")
        return self._finished

    def close(self) -> None:
        """Close the descriptors. `stop` does nothing from now on."""
        with self._closing:
            close_descriptors(self.news, self._stop, self._tell_stop)
            self._tell_stop = -1

    def _work(self) -> None:
        """Run the command, and store its result or the exception. Then close `news`."""
        try:
            self._finished = self._run()
        except BaseException as error:  # raised again in the event loop
            self._error = error
        finally:
            close_descriptors(self._tell_news)

    def _run(self) -> Finished:
        """Run the command in this thread until all its processes are gone. Return the result."""
        call = self._start()
        tell = self._publish if self._on_output else None
        output = OutputPipe(call.reading, tell, self._request.extras.printed)
        watch = _Watch(call, self._limits, self._request.cwd)
        ended_within_limits = False
        exceeded = ""  # a clause about the limit that stopped the command
        guarded, attempts = GuardReport(), tuple[HostAttempt, ...]()
        try:
            if call.problem:
                ended_within_limits = True  # it has not run
            else:
                self._publish_start(call.launch)
                ended_within_limits, exceeded = self._wait_until_ended(watch, output)
        finally:
            watch.end(kindly=not exceeded)
            attempts = call.attempts()
            if _limits_writing(call.launch):
                self._after = call.launch.after
            else:
                guarded = call.launch.after()
            output.close()
            if ended_within_limits:
                self.broken = call.setup_failure(output.printed.start)
            watch.close()
            close_descriptors(call.reading, call.news)
            self._guard.close()
        output_bytes = output.printed
        return Finished(
            _exit_code(call.process.returncode) if ended_within_limits else None,
            output_bytes.start,
            output_bytes.end,
            output_bytes.dropped,
            timed_out=not ended_within_limits and not exceeded,
            stopped=exceeded,
            guarded=guarded,
            offline=call.launch.offline,
            looking=call.launch.looking,
            no_namespaces=call.launch.no_namespaces,
            filtered=call.launch.hosts is not None,
            attempts=attempts,
        )

    def _publish_start(self, launch: Launch) -> None:
        """Call `on_start`. If a function is returned, `deliver` calls it in another thread."""
        with suppress(OSError, ValueError, ToolFailed):
            if function := self.on_start(launch):
                self._publish(function)

    def _start(self) -> RunningCommand:
        """Start the command, in a waiting sandbox if that can be used."""
        launch = Launch()
        try:
            if self._ahead:
                self._guard.callback(self._ahead.close)
            launch = self._make_launch()
            if self._ahead:
                running = self._ahead.run(self._request, launch, self._limits)
                if running:
                    return running
            self._guard.push(confine_thread(launch))
            return start(self._request, launch, self._limits)
        except BaseException:
            self._guard.close()
            launch.after()
            raise

    def _wait_until_ended(self, watch: "_Watch", output: OutputPipe) -> tuple[bool, str]:
        """Wait for the end. Return whether the command ended within its limits.

        Also return a clause about the exceeded limit: "" if there is none, and after a timeout
        or `stop`.
        """
        next_thread_check = time.monotonic() + _THREAD_CHECK_SECONDS
        next_check = watch.disks.next_check(next_thread_check)
        checks = 0  # of the threads since all processes were counted
        while not watch.wait(output, self._stop, self._pause(next_check, output)):
            clock = time.monotonic()
            if watch.stopped or clock >= self._until:
                return False, ""
            if clock < next_check:
                continue
            if why := watch.disks.full_disk():
                return False, why
            if clock >= next_thread_check:
                next_thread_check = clock + _THREAD_CHECK_SECONDS
                checks += 1
                watch.beat()
                if checks >= self._limits.checks_per_count or watch.has_too_many_threads():
                    checks = 0
                    if why := self._limit_exceeded(watch):
                        return False, why
            next_check = watch.disks.next_check(next_thread_check)
        return self._drain(watch, output)

    def _limit_exceeded(self, watch: "_Watch") -> str:
        """Return a clause about the exceeded limit; "" if there is none.

        If no limit is exceeded, publish the CPU seconds, if the caller wants to know.
        """
        why = watch.limit_exceeded()
        if self._used and not why:
            self._publish(watch.cpu_seconds())
        return why

    def _drain(self, watch: "_Watch", output: OutputPipe) -> tuple[bool, str]:
        """Read the rest of the output after bash has exited, and check the limits a last time.

        Return whether the command ended within its limits, and which limit it exceeded, or "".
        """
        until = min(time.monotonic() + _LAST_OUTPUT_SECONDS, self._until)
        while output.open and not watch.stopped and (left := until - time.monotonic()) > 0:
            watch.listen(output, self._stop, left)
        # A shell that has exited may have left many processes. Processes that exit at the
        # same time may hide how many are new.
        exceeded = ""
        if output.open or watch.has_too_many_threads():
            exceeded = watch.limit_exceeded()
        return not exceeded, exceeded

    def _pause(self, next_check: float, output: OutputPipe) -> float:
        """Return the seconds until the next check, the time limit or output that is due."""
        pause = min(next_check, self._until) - time.monotonic()
        if output.seconds_until_due is not None:
            pause = min(pause, output.seconds_until_due)
        return max(0.0, pause)

    def _publish(self, news: str | float | Callable[[], None]) -> None:
        self._messages.append(news)
        _wake(self._tell_news)


class _Watch:
    """Watches the process of a command without reaping it, and kills all its processes."""

    def __init__(self, call: RunningCommand, limits: Limits, cwd: str) -> None:
        self._call, self._process = call, call.process
        # None if the process has exited, or the system has no pidfds.
        self._pidfd = _open_pidfd(call.process.pid)
        self._first_pidfd = _open_pidfd(call.first)  # the first process in the sandbox
        self._group = call.first or call.process.pid
        self._limits, self._threads = limits, thread_count()
        self.disks = Disks((cwd, *limits.disks))
        self.stopped = False

    def wait(self, output: OutputPipe, stop: int, seconds: float) -> bool:
        """Wait for output, the end of the process, a stop or `seconds`.

        Return whether the process has exited.
        """
        if self._pidfd is not None:
            return self._pidfd in self.listen(output, stop, seconds, self._pidfd)
        if self._process.poll() is None:
            seconds = min(seconds, _PROCESS_CHECK_SECONDS)
        self.listen(output, stop, seconds)
        return self._process.poll() is not None

    def listen(
        self, output: OutputPipe, stop: int, seconds: float, *more_descriptors: int
    ) -> list[int]:
        """Wait for output, a stop, one of `more_descriptors` or `seconds`; read the output.

        Return the readable descriptors.
        """
        ready = select.poll()
        of_output = (output.reading,) if output.open else ()
        for number in (stop, *of_output, *more_descriptors):
            ready.register(number, select.POLLIN)
        descriptors = [number for number, _ in ready.poll(seconds * 1000)]
        if output.reading in descriptors or output.seconds_until_due == 0:
            output.read_once()
        self.stopped = self.stopped or stop in descriptors
        return descriptors

    def beat(self) -> None:
        self._call.launch.beat()

    def has_too_many_threads(self) -> bool:
        return too_many_threads(self._limits, self._threads)

    def limit_exceeded(self) -> str:
        """Return a clause about the limit that the processes exceed; "" if none."""
        has_too_many = self.has_too_many_threads()
        if has_too_many:
            # Very many processes would multiply faster than they can be counted, so they are
            # stopped for the count.
            signal_group(self._group, signal.SIGSTOP)
        sandbox_root = f"/proc/{self._group}/root"
        disks = [f"{sandbox_root}/{name}" for name in self._call.launch.in_memory]
        exceeded = limit_exceeded(self._limits, self._pids(), disks)
        if has_too_many and not exceeded:
            signal_group(self._group, signal.SIGCONT)
        return exceeded

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._pids())

    def close(self) -> None:
        close_descriptors(*(n for n in (self._pidfd, self._first_pidfd) if n is not None))

    def end(self, *, kindly: bool) -> None:
        """Kill all processes. If `kindly`, first ask a group outside a sandbox to end."""
        if self._first_pidfd is not None:
            # The kernel kills all processes of a PID namespace with the first one.
            signal_group(self._group, signal.SIGKILL)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first_pidfd, signal.SIGKILL)
            if not _has_no_children(self._group):  # wait until the others are gone
                _wait_until_readable(self._first_pidfd)
        elif self._call.launch.own_space:
            signal_group(self._process.pid, signal.SIGKILL)
        elif not _is_running(self._pidfd, self._process) and not self._has_members():
            pass  # the usual case: the process has exited, and no other is left
        else:
            if kindly:
                self._end_group()
            # Some processes left the group.
            end_all(self._call.mark, self._process.pid)
        self._process.wait()

    def _has_members(self) -> bool:
        mark = self._call.mark
        return mark.forks < 0 or bool(processes_of(mark, self._process.pid))

    def _end_group(self) -> None:
        """Ask the process group to end, and kill it if it does not end in time."""
        # The group's number cannot be reused until the leader is reaped and the group is
        # empty.
        group = self._process.pid
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal_group(group, number)
            signal_group(group, signal.SIGCONT)  # a stopped process must receive the signal
            until = time.monotonic() + _GRACE_SECONDS
            while self._group_runs(group) and time.monotonic() < until:
                time.sleep(_PROCESS_CHECK_SECONDS)
            if not self._group_runs(group):
                return

    def _group_runs(self, group: int) -> bool:
        """Whether the process, or another one in its group, still runs."""
        if _is_running(self._pidfd, self._process):
            return True
        has_members = signal_group(group, 0)  # signal 0 only tests whether a process exists
        return has_members and is_alive(group)

    def _pids(self) -> list[int]:
        """Return the ids of all processes of the command."""
        if self._call.launch.own_space:
            return descendants(self._group, self._limits.processes)
        processes = processes_of(self._call.mark, self._process.pid, gone_too=False)
        return [process.pid for process in processes]


def _is_running(number: int | None, process: "subprocess.Popen[bytes]") -> bool:
    """Whether the process still runs. With a pidfd, `number`, it is not reaped."""
    if number is None:
        return process.poll() is None
    return not _wait_until_readable(number, milliseconds=0)


def _has_no_children(first: int) -> bool:
    """Whether the first process of a PID namespace is the only process left there.

    Orphaned processes become its children. The first process itself exits a little later,
    because the kernel takes milliseconds to undo its mounts.
    """
    try:
        with open(f"/proc/{first}/task/{first}/children", "rb") as file:
            return not file.read()
    except OSError:  # the process has exited, or the kernel does not list children
        return False


def _wait_until_readable(number: int, milliseconds: int | None = None) -> bool:
    """Wait until a descriptor is readable. Return False after `milliseconds`.

    None means that there is no time limit.
    """
    ready = select.poll()
    ready.register(number, select.POLLIN)
    return bool(ready.poll(milliseconds))


def _limits_writing(launch: Launch) -> bool:
    return launch.restrictions is not None and launch.restrictions.writable is not None


def _open_pidfd(pid: int) -> int | None:
    """Return a pidfd of a process; None if that fails.

    It fails if the process has exited, and on other systems than Linux.
    """
    try:
        return os.pidfd_open(pid) if pid else None
    except (AttributeError, OSError):
        return None


def _exit_code(return_code: int | None) -> int | None:
    """Return the exit status as shells report it.

    For a process that was killed by a signal, that is 128 plus the signal's number.
    """
    if return_code is None or return_code >= 0:
        return return_code
    signal_number = -return_code
    return 128 + signal_number


def _wake_pipe() -> tuple[int, int]:
    """Return both ends of a pipe, neither of which blocks."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


def _wake(writing: int) -> None:
    with suppress(BlockingIOError):  # the pipe is full, so the thread is awake already
        os.write(writing, b"!")
