"""Commands on this machine: bash, in a sandbox where there is one, within limits.

It keeps the promises of `port.Commands`. How walls are built is `sandbox`'s business,
how a process is started `starting`'s, how all that it left is found `reaper`'s. What
may run at all is judged before.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from copy import copy

import anyio
from anyio import to_thread

from refold.errors import ToolFailed
from refold.groups import lives, signal_group
from refold.place.environment import environment
from refold.place.limits import Limits, computed, crowded, descendants, free, over, threads
from refold.place.names import escaped
from refold.place.port import LOOKING, NOTHING_MORE, Finished, Given
from refold.place.printed import Reader
from refold.place.reaper import end_all, members
from refold.place.sandbox import Held, Sandbox, nothing
from refold.place.starting import Call, Order, Threads, cannot, close, start
from refold.values.confines import Confines

_GRACE = 0.5  # seconds between the request to end and the order
_LAST_WORDS = 0.2  # seconds in which what still runs may print after bash has ended
_LOOK_AGAIN = 0.005  # seconds: nobody tells us of processes that are not our children
_GLANCE_AGAIN = 0.03  # seconds between two glances at how crowded the machine is
_TRIES = 2  # what is to be hidden may go away while a sandbox is set up


class ShellCommands:
    """`ours` is the environment that commands are given the harmless part of.

    Without a sandbox a command can do what the person can.
    """

    def __init__(
        self,
        ours: Mapping[str, str] | None = None,
        sandbox: Sandbox | None = None,
        limits: Limits | None = None,
    ) -> None:
        given = os.environ if ours is None else ours
        roots = sandbox.wish.roots if sandbox else ()
        self._looking = environment(given, roots)
        self._environment = environment(given)
        self._sandbox, self._limits = sandbox, limits or Limits()
        self._threads = Threads()
        self._unread: Callable[[], Sequence[str]] = nothing

    def has(self, program: str) -> bool:
        return shutil.which(program, path=self._looking["PATH"]) is not None

    def hiding(self, unread: Callable[[], Sequence[str]]) -> "ShellCommands":
        found, before = copy(self), self._unread
        found._unread = lambda: (*before(), *unread())
        return found

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        confines: Confines = LOOKING,
        on_output: Callable[[str], None] | None = None,
        given: Given = NOTHING_MORE,
    ) -> Finished:
        environ = self._environment if confines.writes else self._looking
        order = Order(command, cwd, confines, environ, given)
        broken = ""
        for _ in range(_TRIES):
            done, broken = await self._once(order, seconds, on_output)
            if not broken:
                return done
        raise ToolFailed(f"The sandbox for the command could not be set up: {broken}.")

    def close(self) -> None:
        """End of the session. What commands kept in their private /tmp goes, too."""
        self._threads.close()
        if self._sandbox:
            self._sandbox.close()

    async def _once(
        self, order: Order, seconds: float | None, on_output: Callable[[str], None] | None
    ) -> tuple[Finished, str]:
        call = await to_thread.run_sync(self._start, order)
        output, ended, stopped = Reader(call.reading, on_output), False, list[str]()
        taken = list[tuple[str, str]]()
        with _watch(call, self._limits_of(order), order.cwd) as watch:
            try:
                with anyio.move_on_after(seconds):
                    stopped = await _until_ended(watch, output, order.given.used)
                    ended = not stopped
                    with anyio.move_on_after(0 if stopped else _LAST_WORDS) as last:
                        await output.to_the_end()
                    if ended and (last.cancelled_caught or watch.crowded()):
                        # A shell that has ended may have left a crowd behind, and another
                        # that is just going may hide how many came up.
                        stopped += filter(None, [await to_thread.run_sync(watch.over)])
                        ended = not stopped
            finally:
                with anyio.CancelScope(shield=True):
                    await watch.end(kindly=not stopped)
                    taken = await to_thread.run_sync(call.held.after)
                output.close()
                broken = call.broken(output.printed.start)
                close(call.reading, call.news)
        kept = output.printed
        done = Finished(
            _code(call.process.returncode) if ended else None,
            kept.start,
            kept.end,
            kept.dropped,
            timed_out=not ended and not stopped,
            stopped="".join(stopped),
            taken=tuple(taken),
            offline=call.held.offline,
            looking=call.held.looking,
        )
        return done, broken if ended else ""

    def _limits_of(self, order: Order) -> Limits:
        return order.given.limits or self._limits

    def _start(self, order: Order) -> Call:
        if not os.path.isdir(order.cwd):
            raise ToolFailed(
                f"The command could not be started in {escaped(order.cwd)}: "
                "there is no such directory."
            )
        try:
            ends = os.pipe()
        except OSError as error:
            raise cannot(order.cwd, error) from error
        try:
            held = Held()
            if around := self._sandbox:
                seen, unread = order.given.seen, self._unread
                held = around.held(order.cwd, order.confines, ends[1], seen, unread)
            begun = self._threads.of(held.rights).submit(
                start, order, held, self._limits_of(order), ends
            )
        except BaseException:
            close(*ends)
            raise
        try:
            return begun.result()
        except BrokenExecutor as error:
            close(*ends)
            raise ToolFailed(
                "The sandbox for the command could not be set up: Landlock refuses. "
                'Set sandbox.profile = "off" to run commands without one.'
            ) from error


async def _until_ended(
    watch: "_Watch", output: Reader, used: Callable[[float], None] | None
) -> list[str]:
    """Gives the limit that it is over, if it has not ended by itself."""
    stopped = list[str]()

    async def count() -> None:
        while not stopped:
            for _ in range(watch.limits.glances):
                await anyio.sleep(_GLANCE_AGAIN)
                if watch.crowded():
                    break
            if why := await to_thread.run_sync(watch.over):
                stopped.append(why)
            elif used:
                used(await to_thread.run_sync(watch.computed))
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(output.to_the_end)
        group.start_soon(count)
        await watch.ended()
        group.cancel_scope.cancel()
    return stopped


class _Watch:
    """Knows when a process has ended, without reaping it, and ends all of its call."""

    def __init__(self, call: Call, limits: Limits, cwd: str) -> None:
        self._call, self._process = call, call.process
        self._number, self._first = _descriptor(call.process.pid), _descriptor(call.first)
        self._group = call.first or call.process.pid
        self.limits, self._threads = limits, threads()
        self._disks = ((cwd, free(cwd)),)

    def crowded(self) -> bool:
        return crowded(self.limits, self._threads)

    def over(self) -> str:
        """The limit that it is over; "" if none. It looks at all that runs."""
        # A crowd would grow faster than it can be counted.
        if crowd := self.crowded():
            signal_group(self._group, signal.SIGSTOP)
        inside = f"/proc/{self._group}/root"
        disks = (f"{inside}/dev", f"{inside}/run") if self._call.held.own_space else ()
        found = over(self.limits, self._pids(), self._disks, disks)
        if crowd and not found:
            signal_group(self._group, signal.SIGCONT)
        return found

    def computed(self) -> float:
        return computed(self._pids())

    def close(self) -> None:
        for number in (self._number, self._first):
            if number is not None:
                os.close(number)

    def _pids(self) -> list[int]:
        if self._call.held.own_space:
            return descendants(self._group, self.limits.processes)
        found = members(self._call.mark, self._process.pid, gone_too=False)
        return [one.pid for one in found]

    async def ended(self) -> None:
        if self._process.returncode is not None:
            return
        if self._number is not None:
            await anyio.wait_readable(self._number)
        else:
            await to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    async def end(self, *, kindly: bool) -> None:
        if self._first is not None:
            # The kernel ends all of a space of processes with the first of them.
            signal_group(self._group, signal.SIGKILL)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            await anyio.wait_readable(self._first)
        elif self._call.held.own_space:
            signal_group(self._process.pid, signal.SIGKILL)
        else:
            if kindly:
                await _end_group(self._process, self)
            # Some left the group; and reading all that runs takes a while.
            await to_thread.run_sync(end_all, self._call.mark, self._process.pid)
        await self.ended()
        await to_thread.run_sync(self._process.wait)


async def _end_group(process: "subprocess.Popen[bytes]", watch: _Watch) -> None:
    # Until the leader is reaped, and while anybody else is in the group, its number
    # cannot come to mean another group.
    for order in (signal.SIGTERM, signal.SIGKILL):
        signal_group(process.pid, order)
        signal_group(process.pid, signal.SIGCONT)  # one that was stopped must hear it
        with anyio.move_on_after(_GRACE) as grace:
            await watch.ended()
            # Nothing tells us of the end of processes that are not our children.
            while signal_group(process.pid, 0) and await _lives(process.pid):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_AGAIN)
        if not grace.cancelled_caught:
            return


async def _lives(group: int) -> bool:
    return await to_thread.run_sync(lives, group)


@contextmanager
def _watch(call: Call, limits: Limits, cwd: str) -> Generator[_Watch]:
    watch = _Watch(call, limits, cwd)
    try:
        yield watch
    finally:
        watch.close()


def _descriptor(pid: int) -> int | None:
    """Of a process. None: no Linux, none left, or it has ended by now."""
    try:
        return os.pidfd_open(pid) if pid else None
    except (AttributeError, OSError):
        return None


def _code(returned: int | None) -> int | None:
    """The code as shells say it: 128 and more for a signal."""
    return 128 - returned if returned is not None and returned < 0 else returned
