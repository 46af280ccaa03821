"""Sets up a sandbox before its command is known, because that takes longer than most commands.

It is set up as for a command like the last one, and waits at its gate (`spawn.GatedSandbox`).
The next command uses it only if a new sandbox would be the same and the files in it are still
current. Otherwise it is closed, and the command gets a new one.

One sandbox for all commands of a session would not do: a command would meet processes of
earlier commands, and a file that was created after the first command could not be hidden
(decision 0192).
"""

import os
from _thread import start_new_thread
from threading import Event, Lock
from typing import ClassVar

from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.limits import Limits
from refold.place.port import NOTHING_MORE
from refold.place.sandbox import Launch
from refold.place.spawn import GatedSandbox, RunningCommand, SpawnRequest, confine_thread

_WAIT_SECONDS = 60.0  # the time for which a sandbox waits for a command
_MAX_OF_PROCESS = 32  # the number that wait in all sessions; each needs ten open files
_MAX_COMMAND_BYTES = 100_000  # a longer command may be refused when it is started


class SandboxAhead:
    """A sandbox that waits for a command. `run` runs the command. Always call `close`.

    If too many sandboxes wait in this process, the oldest are closed. Each has its own thread,
    because a sandbox is killed with the thread that started it, and because a thread cannot
    regain rights that it gave up.
    """

    _of_process: ClassVar[list["SandboxAhead"]] = []
    _of_process_lock: ClassVar[Lock] = Lock()

    def __init__(
        self, request: SpawnRequest, launch: Launch, seconds: float = _WAIT_SECONDS
    ) -> None:
        self._request = replace(request, command="", extras=NOTHING_MORE)
        self._launch, self._seconds = launch, seconds
        self._gated: GatedSandbox | None = None
        self._set_up, self._closing, self._ended = Event(), Event(), Event()
        self._lock = Lock()
        self._taken = False  # whether a command runs in the sandbox, or has run in it
        self._limit_waiting()
        start_new_thread(self._work, ())

    def _limit_waiting(self) -> None:
        """Add this sandbox to those that wait, and close the oldest if they are too many."""
        with self._of_process_lock:
            waiting = [*(ahead for ahead in self._of_process if ahead.waits), self]
            for ahead in waiting[:-_MAX_OF_PROCESS]:
                ahead.close_unused()
            self._of_process[:] = waiting[-_MAX_OF_PROCESS:]

    @property
    def waits(self) -> bool:
        """Whether the sandbox has not been used, and has not ended."""
        return not (self._taken or self.has_ended)

    def close_unused(self) -> None:
        """Close the sandbox, unless a command has taken it."""
        with self._lock:
            if not self._taken:
                self._closing.set()

    def run(
        self, request: SpawnRequest, launch: Launch, limits: Limits
    ) -> RunningCommand | None:
        """Run a command in this sandbox.

        Return None if this sandbox cannot be used: it was closed, its files are not current, a
        new sandbox would differ, or the command cannot be passed to it.
        """
        command = _encode_command(request.command)
        if command is not None and self.is_of(launch):
            gated = self._take(launch)
            if gated is not None:
                return gated.release(launch, limits, command)
        self._closing.set()
        return None

    def _take(self, launch: Launch) -> GatedSandbox | None:
        """Take the sandbox for a command, when it is set up. Return None if it is of no use."""
        self._set_up.wait()
        with self._lock:
            gated = self._gated  # None: setup failed, or the sandbox waited too long
            if gated is None or self._closing.is_set() or not gated.shows(launch):
                return None
            self._taken = True
            return gated

    def suits(self, request: SpawnRequest) -> bool:
        """Whether the sandbox was set up for commands like this one.

        Such commands have the same directory, permissions and variables, and no input.
        """
        if request.extras.stdin is not None:
            return False
        ours = self._request
        return (request.cwd, request.confines, request.environ) == (
            ours.cwd, ours.confines, ours.environ,
        )  # fmt: skip

    def is_of(self, launch: Launch) -> bool:
        """Whether a new sandbox for `launch` would have the same arguments and variables."""
        if launch.hosts is not None:  # the listener of a network filter is for one command
            return False
        expected = self._launch
        return (launch.arguments, launch.environ) == (expected.arguments, expected.environ)

    @property
    def is_ready(self) -> bool:
        """Whether the setup is over: the sandbox waits for its command, or has failed or ended."""
        return self._set_up.is_set()

    def close(self) -> None:
        """Close the sandbox, after its command has ended or without a command."""
        self._closing.set()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait_until_ended(self) -> None:
        self._ended.wait()

    def _work(self) -> None:
        """Set up the sandbox and hold it until it is used or closed. Ignore failures."""
        try:
            self._hold_sandbox()
        except (OSError, ValueError, ToolFailed):
            pass  # the command then gets its own sandbox, or reports the reason
        finally:
            self._set_up.set()
            self._ended.set()

    def _hold_sandbox(self) -> None:
        """Set up the sandbox, and hold it until it is closed or has waited too long."""
        with confine_thread(self._launch):
            gated = GatedSandbox(self._request, self._launch, ahead=True)
            if gated.wait():
                self._gated = gated  # from now on a command can take it
                self._set_up.set()
                self._closing.wait(self._seconds)
            with self._lock:
                self._gated = None
            if self._taken:
                # the sandbox is killed with this thread, so wait until the command has ended
                self._closing.wait()
            else:
                gated.end()


def _encode_command(text: str) -> bytes | None:
    """Return a command as bytes for the waiting shell; None if it cannot be passed to it."""
    try:
        command = os.fsencode(text)
    except UnicodeEncodeError:  # a lone surrogate: starting the command normally reports it
        return None
    return command if len(command) <= _MAX_COMMAND_BYTES and b"\0" not in command else None
