"""Sets up a sandbox before its command is known: setup takes longer than most commands.

It is one like that of a command that has just started, and waits at its gate
(`spawn.GatedSandbox`). The next command takes it only if it would get the very same now, and
if the files that it shows are those that lie there now. Otherwise it is closed, unused, and
the command gets a new one.

If all commands of a session shared one sandbox, each would meet what the one before left
running, and none would be kept from a file that was created after the first (decision 192).
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

_WAIT_SECONDS = 60.0  # in which a sandbox waits for a command
_MAX_OF_PROCESS = 32  # that wait in all sessions: each has ten files open
_MAX_COMMAND_BYTES = 100_000  # a longer command may be refused when it is started


class SandboxAhead:
    """A sandbox whose command is not known yet. `run` one command in it, and `close` it in any
    case. If too many wait, the oldest end.

    It has a thread of its own for as long as the sandbox lives: a sandbox ends with the thread that
    started it, and what the thread gives up is given up for good.
    """

    _of_process: ClassVar[list["SandboxAhead"]] = []
    _of_process_lock: ClassVar[Lock] = Lock()

    def __init__(
        self, request: SpawnRequest, launch: Launch, seconds: float = _WAIT_SECONDS
    ) -> None:
        self._request = replace(request, command="", given=NOTHING_MORE)
        self._launch, self._seconds = launch, seconds
        self._gated: GatedSandbox | None = None
        self._stands, self._over, self._ended = Event(), Event(), Event()
        self._lock, self._taken = Lock(), False
        self._limit_waiting()
        start_new_thread(self._work, ())

    def _limit_waiting(self) -> None:
        with self._of_process_lock:
            waiting = [ahead for ahead in self._of_process if ahead.waits]
            for ahead in waiting[: 1 - _MAX_OF_PROCESS]:
                ahead.close_unused()
            self._of_process[:] = [*waiting[1 - _MAX_OF_PROCESS :], self]

    @property
    def waits(self) -> bool:
        """Whether the sandbox waits for a command: none runs in it, and it has not ended."""
        return not (self._taken or self.has_ended)

    def close_unused(self) -> None:
        with self._lock:
            if not self._taken:
                self._over.set()

    def run(
        self, request: SpawnRequest, launch: Launch, limits: Limits
    ) -> RunningCommand | None:
        """Run the command in this sandbox, if it was set up as `launch` says; otherwise
        return None.
        """
        command, gated = _encode_command(request.command), None
        if command is not None and self.is_of(launch):
            self._stands.wait()
            with self._lock:
                # None: setup failed, it has waited too long, or it was closed.
                gated = None if self._over.is_set() else self._gated
                self._taken = gated is not None and gated.shows(launch)
        if command is None or gated is None or not self._taken:
            self._over.set()
            return None
        return gated.release(launch, limits, command)

    def suits(self, request: SpawnRequest) -> bool:
        """Whether the sandbox was set up for commands like this one."""
        ours = self._request
        return request.given.stdin is None and (
            (request.cwd, request.confines, request.environ)
            == (ours.cwd, ours.confines, ours.environ)
        )

    def is_of(self, launch: Launch) -> bool:
        """Whether the sandbox was set up as `launch` says."""
        expected = self._launch
        same = (launch.arguments, launch.environ) == (expected.arguments, expected.environ)
        return same and launch.hosts is None

    @property
    def is_ready(self) -> bool:
        """Whether the sandbox waits for its command, or has ended."""
        return self._stands.is_set()

    def close(self) -> None:
        """Close the sandbox when its command has ended, or if no command took it."""
        self._over.set()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait_until_ended(self) -> None:
        self._ended.wait()

    def _work(self) -> None:
        try:
            self._hold_sandbox()
        except (OSError, ValueError, ToolFailed):
            pass  # then the command gets its own sandbox, or reports why not
        finally:
            self._stands.set()
            self._ended.set()

    def _hold_sandbox(self) -> None:
        with confine_thread(self._launch):
            gated = GatedSandbox(self._request, self._launch, ahead=True)
            if gated.wait():
                self._gated = gated
                self._stands.set()
                self._over.wait(self._seconds)
            with self._lock:
                self._gated = None
            if self._taken:
                self._over.wait()
            else:
                gated.end()


def _encode_command(text: str) -> bytes | None:
    """The line for the shell inside; None for a command that cannot run in a waiting sandbox."""
    try:
        command = os.fsencode(text)
    except UnicodeEncodeError:  # a lone surrogate: the normal start reports it
        return None
    return command if len(command) <= _MAX_COMMAND_BYTES and b"\0" not in command else None
