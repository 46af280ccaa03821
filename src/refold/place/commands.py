"""Commands on this machine: bash, in a sandbox if there is one, within limits.

Implements `port.Commands`, on the side of the event loop. `supervise` runs each command
from start to end in a thread, `sandbox` decides how it is confined. Permissions have been
decided before.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.environment import READ_ONLY_GIT_ENVIRONMENT as LOOKING_GIT
from refold.place.environment import environment
from refold.place.limits import Limits
from refold.place.port import NOTHING_MORE, READ_ONLY, CommandExtras, Finished
from refold.values.printable_names import escape_name
from refold.values.tools import Confinement

if TYPE_CHECKING:
    from refold.place.editor_files import EditorGate
    from refold.place.sandbox import Launch, Sandbox
    from refold.place.sandbox_ahead import SandboxAhead
    from refold.place.spawn import SpawnRequest
    from refold.place.supervise import Supervisor

_MAX_AHEAD = 2  # sandboxes that wait for a command
_MAX_START_TRIES = 5  # mounted files may be deleted or renamed during setup


class ShellCommands:
    """`ours` is our environment; commands get the harmless part of it.

    Without a sandbox a command can do what the user can. `sandbox` is called when the first
    command starts, because many sessions, and many first requests, run none.
    """

    def __init__(
        self,
        ours: Mapping[str, str] | None = None,
        sandbox: "Callable[[], Sandbox] | None" = None,
        limits: Limits | None = None,
    ) -> None:
        self._given = os.environ if ours is None else ours
        self._of_session, self.limits = sandbox, limits or Limits()
        self._unread: Callable[[], Sequence[str]] = tuple
        self._ahead = _Ahead()  # shared with the results of `with_hidden_paths`
        self.gate: EditorGate | None = None  # for an editor that writes the same files

    @cached_property
    def _sandbox(self) -> "Sandbox | None":
        return self._of_session() if self._of_session else None

    @cached_property
    def _read_only_environment(self) -> dict[str, str]:
        roots = self._sandbox.config.roots if self._sandbox else ()
        return environment(self._given, roots) | LOOKING_GIT

    @cached_property
    def _environment(self) -> dict[str, str]:
        return environment(self._given)

    def has(self, program: str) -> bool:
        from shutil import which  # its compressors take long to load

        return which(program, path=self._read_only_environment["PATH"]) is not None

    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "ShellCommands":
        hidden, before = copy(self), self._unread
        hidden._unread = lambda: (*before(), *unread())
        return hidden

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        confines: Confinement = READ_ONLY,
        on_output: Callable[[str], None] | None = None,
        extras: CommandExtras = NOTHING_MORE,
    ) -> Finished:
        from refold.place.spawn import SpawnRequest  # a first request runs nothing

        environ = self._environment if confines.writes else self._read_only_environment
        if extras.environ:
            environ = {**environ, **extras.environ}
        request = SpawnRequest(command, cwd, confines, environ, extras)
        broken = ""
        for _ in range(_MAX_START_TRIES):
            finished, broken = await self._run_once(request, seconds, on_output)
            if not broken:
                return finished
            if extras.printed is not None:
                extras.printed.clear()  # it holds why the sandbox was not set up
        raise ToolFailed(f"The sandbox for the command could not be set up: {broken}.")

    def close(self) -> None:
        """End the session: delete the private /tmp of its commands, too."""
        self._ahead.close()
        if sandbox := self.__dict__.get("_sandbox"):
            sandbox.close()

    async def _run_once(
        self,
        request: "SpawnRequest",
        seconds: float | None,
        on_output: Callable[[str], None] | None,
    ) -> tuple[Finished, str]:
        from refold.place.supervise import Supervisor

        limits = request.given.limits or self.limits
        make_launch = partial(self._launch, request)
        gate = self._editor_gate_for(request.confines)
        if gate is not None:
            await gate.begin_command()
        try:
            filtered = request.confines.network and request.confines.hosts is not None
            usual = request.given.usual and not filtered
            ahead = self._ahead.take(request) if usual else None
            running = Supervisor(request, limits, seconds, on_output, make_launch, ahead)
            running.on_start = partial(self._prepare_next, request)
            running.begin()
        except BaseException:
            if gate is not None:
                gate.end_command()
            raise
        going = _ContinuedCommand(running, gate, self._ahead)
        handover = request.given.handover
        if handover is None:
            return await going.wait(), running.broken
        let_go = False
        try:
            let_go = await handover.wait_for_request(_wait_for_end(running))
        finally:
            if not let_go:
                await going.settle()
        if not let_go:
            return running.result(), running.broken
        running.detach()
        assert request.given.printed is not None  # `handover` needs it
        start, lost, end, _ = request.given.printed.since(0)
        return Finished(None, start, end, lost, continued=going), ""

    def _editor_gate_for(self, confines: Confinement) -> "EditorGate | None":
        """The gate, or None if the command cannot change files or no editor writes them."""
        if self.gate is None or confines.writes:
            return self.gate
        return None if self._sandbox is not None and self._sandbox.confines else self.gate

    def _launch(self, request: "SpawnRequest") -> "Launch":
        from refold.place.sandbox import Launch

        if not os.path.isdir(request.cwd):
            raise ToolFailed(
                f"The command could not be started in {escape_name(request.cwd)}: "
                "there is no such directory."
            )
        if self._sandbox is None:
            return Launch()
        return self._sandbox.launch(
            request.cwd, request.confines, request.given, self._unread
        )

    def _prepare_next(
        self, request: "SpawnRequest", launch: "Launch"
    ) -> Callable[[], None] | None:
        """The function that sets up a sandbox for a next command like this one, or None."""
        sandbox = self._sandbox
        if sandbox is None or sandbox.kind != "bubblewrap" or not request.given.usual:
            return None  # all others are quick to set up
        confines = request.confines
        if confines.opened or confines.of_git or confines.seen:
            # Paths that the user approved were approved for that command alone.
            confines = replace(confines, opened=(), of_git=(), seen=())
            request = replace(request, confines=confines)
            launch = sandbox.launch_without_guards(request.cwd, confines, self._unread)
        if launch.hosts is not None:
            return None  # its listener belongs to one command
        return partial(self._ahead.set_up, request, launch)


class _Ahead:
    """The sandboxes of next commands: at most `_MAX_AHEAD`, and none after `close`.

    One waits for each kind of command, because agents read and write in turn. If it is not
    ready when its command comes, two are kept for that kind.
    """

    def __init__(self) -> None:
        self._waiting: list[SandboxAhead] = []
        self._lock, self._closed = Lock(), False
        self._wanted = 1  # for the kind of the last command

    def set_up(self, request: "SpawnRequest", launch: "Launch") -> None:
        """Set up what is missing for commands like `request`, and end what became useless."""
        from refold.place.sandbox_ahead import SandboxAhead

        with self._lock:
            if self._closed:
                return
            waiting: list[SandboxAhead] = []
            suited = 0
            for ahead in self._waiting:
                suits = ahead.suits(request)
                if ahead.has_ended or (suits and not ahead.is_of(launch)):
                    ahead.close()
                else:
                    waiting.append(ahead)
                    suited += suits
            missing = range(suited, self._wanted)
            waiting += (SandboxAhead(request, launch) for _ in missing)
            for ahead in waiting[:-_MAX_AHEAD]:
                ahead.close()
            self._waiting = waiting[-_MAX_AHEAD:]

    def take(self, request: "SpawnRequest") -> "SandboxAhead | None":
        """The oldest for a command like this one."""
        with self._lock:
            suited = [ahead for ahead in self._waiting if ahead.suits(request)]
            self._wanted = 1 if all(ahead.is_ready for ahead in suited) else _MAX_AHEAD
            if not suited:
                return None
            self._waiting.remove(suited[0])
        return suited[0]

    def discard(self) -> None:
        """End all that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for ahead in waiting:
            ahead.close()
        for ahead in waiting:
            ahead.wait_until_ended()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.discard()


class _ContinuedCommand:
    """Implements `port.Continued`."""

    def __init__(
        self, running: "Supervisor", gate: "EditorGate | None", ahead: _Ahead
    ) -> None:
        self._running, self._gate, self._ahead = running, gate, ahead

    async def end(self) -> Finished:
        finished = await self.wait()
        if broken := self._running.broken:
            raise ToolFailed(f"The sandbox for the command could not be set up: {broken}.")
        return finished

    async def wait(self) -> Finished:
        try:
            await _wait_for_end(self._running)
        finally:
            await self.settle()
        return self._running.result()

    async def settle(self) -> None:
        """End the command if it runs, and release its resources."""
        running = self._running
        with anyio.CancelScope(shield=True):
            running.stop()
            await _wait_for_end(running)
            if running.needs_settling:
                await anyio.to_thread.run_sync(running.settle)
        running.close()
        if not running.has_ended_by_itself:
            self._ahead.discard()
        if self._gate is not None:
            self._gate.end_command()


async def _wait_for_end(running: "Supervisor") -> None:
    while not running.over:
        await anyio.wait_readable(running.news)
        running.deliver()
