"""Sets up a sandbox before its command is known: setup takes longer than most commands.

It is one like that of the command that has just ended, and waits at its gate
(`spawn.GatedSandbox`). The next command takes it only if it would get the very same now, and
if the files that it shows are those that lie there now. Otherwise it is closed, unused, and
the command gets a new one.

It is set up when a command ends, in that command's thread: 0.4 ms there, 3 ms beside the
event loop. If all commands of a session shared one sandbox, each would meet what the one
before left running.
"""

import os
from _thread import start_new_thread
from threading import Event, Lock

from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.limits import Limits
from refold.place.port import NOTHING_MORE
from refold.place.sandbox import Launch
from refold.place.spawn import GatedSandbox, RunningCommand, SpawnRequest, confine_thread

_WAIT_SECONDS = 60.0  # in which a sandbox waits for a command
_MAX_COMMAND_BYTES = 100_000  # a longer command may be refused when it is started


class SandboxAhead:
    """One sandbox. `take` it once, and `close` it in any case.

    It has a thread of its own for as long as the sandbox lives: a sandbox ends with the
    thread that started it, and what the thread gives up is given up for good.
    """

    def __init__(
        self, request: SpawnRequest, launch: Launch, seconds: float = _WAIT_SECONDS
    ) -> None:
        self._request = replace(request, command="", given=NOTHING_MORE)
        self._launch, self._seconds = launch, seconds
        self._gated: GatedSandbox | None = None
        self._stands, self._over, self._ended = Event(), Event(), Event()
        self._lock, self._taken = Lock(), False
        start_new_thread(self._work, ())

    def run_in_it(
        self, request: SpawnRequest, launch: Launch, limits: Limits
    ) -> RunningCommand | None:
        """Run the command in it, if this is the sandbox of `launch`; otherwise None."""
        command, gated = self._command(request), None
        if command is not None:
            self._stands.wait()
            with self._lock:
                gated = self._gated  # None: setup failed, or it has waited too long
                self._taken = gated is not None and self._is_of(launch, gated)
        if command is None or gated is None or not self._taken:
            self._over.set()
            return None
        return gated.release(launch, limits, command)

    def _command(self, request: SpawnRequest) -> bytes | None:
        """The line for the shell inside; None for a command that cannot run in this sandbox."""
        target = (self._request.cwd, self._request.environ)
        if request.given.stdin is not None or (request.cwd, request.environ) != target:
            return None
        try:
            command = os.fsencode(request.command)
        except UnicodeEncodeError:  # a lone surrogate: the normal start reports it
            return None
        return (
            command if len(command) <= _MAX_COMMAND_BYTES and b"\0" not in command else None
        )

    def _is_of(self, launch: Launch, gated: GatedSandbox) -> bool:
        expected = self._launch
        same = (launch.arguments, launch.environ) == (expected.arguments, expected.environ)
        return same and launch.hosts is None and gated.shows(launch)

    def close(self) -> None:
        """Close it when its command has ended, or if it was not taken."""
        self._over.set()

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
